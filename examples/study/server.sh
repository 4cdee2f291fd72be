#!/bin/sh
# Server of a study in shell and curl: eight clients, four a job, say who they are.
# The launcher starts it: gspc-launcher --config-name examples/study/http.toml
set -eu

said() { sed -n 's/.*"'"$1"'": *"\([^"]*\)".*/\1/p' "$GSPC_SERVER_FILE"; }
if [ "$(said host)" != "$(uname -n)" ]; then # somebody else may listen at the same port here: tell him nothing
    echo "the launcher runs on the host $(said host), which alone can reach its HTTP interface" >&2
    exit 1
fi
secret=$(said token)

# launcher: its address, while its process lives: when it was killed, its port may be another's. One that goes on
# from a journal says in the same file where it is.
launcher() {
    tries=0
    until kill -0 "$(sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' "$GSPC_SERVER_FILE")" 2>/dev/null; do
        tries=$((tries + 1))
        if [ "$tries" -gt 120 ]; then
            echo "the launcher was killed" >&2
            return 1
        fi
        sleep 1
    done
    said http
}

# ask METHOD PATH [BODY]: the secret goes through a pipe, for everybody sees the arguments of a process.
ask() {
    http=$(launcher) || return 1
    printf 'header = "Authorization: Bearer %s"\n' "$secret" |
        curl --silent --show-error --fail --retry 30 --retry-connrefused --retry-delay 1 --config - \
            --request "$1" ${3:+--data "$3"} "$http$2"
}

ask POST /ping
for ids in 0,1,2,3 4,5,6,7; do
    ask POST /jobs '{"client_ids": ['$ids'], "command": ["sh", "-c", "echo client $GSPC_CLIENT_ID"]}'
done

after=0 ended=0
while [ "$ended" -lt 8 ]; do
    ask POST /ping >/dev/null
    news=$(ask GET "/events?after=$after&wait_s=3") || continue # it waits for news, maybe of a new launcher
    after=$(printf '%s' "$news" | sed -n 's/.*"next":\([0-9]*\).*/\1/p')
    ended=$((ended + $(printf '%s' "$news" | grep -o '"state":"completed"' | wc -l)))
    echo "$ended clients have ended"
done
ask POST /done
