# The two commands of the README are `make run` and `make test`. Each makes .venv by itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Without compiled modules every process that a test starts would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test e2e quick coallocation-long cpython lab engine-packages engines bridge-packages bridges package browser style types docs site screenshots simulate hunt mutants leaks chaos hostile bench bench-smoke clean

run: $(VENV)/.installed
	@$(BIN)/gspc-jobserver run examples/wordcount.py

# As many as tests/conftest.py says, each with few tests at a time, so that none has many left when the others have none.
WORKERS := -n logical --maxschedchunk 8

# Clusters with each kind of fault, and seeds that found something once: make simulate runs them. Some whole clusters stay with make test.
SIMULATED := $(filter-out %/test_simulation_seeds.py,$(wildcard tests/simulation/test_*.py)) tests/simulation/seeds

# What starts whole systems by commands, or several of them, or draws whole screens, for each test: make e2e runs them.
SYSTEMS := $(wildcard tests/components/test_*.py) \
	$(addprefix tests/,e2e examples tui/screens docs/test_snippets.py docs/test_troubleshooting.py) \
	$(addprefix tests/executor/test_,managers.py nested_systems.py notebook.py single_calls.py) \
	$(addprefix tests/components/,job/shell/test_recovery.py rif/shell/test_rif_process.py rts/shell/test_memory_servers.py) \
	$(addprefix tests/iml/shell/test_,arena.py processes.py)

# What looks at the files of the repository: make style runs it.
STYLE := tests/test_style.py

test: $(VENV)/.test-installed
	$(BIN)/python -m pytest -q $(WORKERS) $(addprefix --ignore ,$(SIMULATED) $(SYSTEMS) $(STYLE))

e2e: $(VENV)/.test-installed
	$(BIN)/python -m pytest -q $(WORKERS) $(SYSTEMS)

# The machines and all else that is pure, and three seeds, in less than a minute: for after each change. Before a commit: make test and make e2e.
QUICK := core protocol policies records workflow iml nursery/scopes $(addprefix components/,job rif rm rts wire worker) \
	simulation/test_simulation_seeds.py::test_a_seed_replays_event_by_event

quick: $(VENV)/.test-installed
	$(BIN)/python -m pytest -q $(WORKERS) $(addprefix tests/,test_style.py $(QUICK)) --ignore-glob='*/shell'

# A million texts that were broken at random, the order of 10,000 random trees against a naive model, and services cut off at each message.
coallocation-long: $(VENV)/.test-installed
	$(BIN)/python -m tests.components.coallocation.long

# CPython's own tests of executors, against ours. They are in a Debian package; where there is none it says so and skips.
cpython: $(VENV)/.test-installed
	@version=$$($(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); suite=$$(mktemp -d); trap 'rm -rf "$$suite"' EXIT; \
	if (cd "$$suite" && apt-get download -qq "libpython$$version-testsuite" && dpkg -x ./*.deb .) >/dev/null 2>&1; then \
		$(BIN)/python -m tests.cpython.run "$$suite/usr/lib/python$$version"; \
	else echo "CPython's tests were not run: the package libpython$$version-testsuite is not to be had" >&2; fi

# What needs root and the Debian packages openssh-server, iproute2 and nftables; without them it says so and skips.
lab: $(VENV)/.test-installed
	GSPC_LAB=1 $(BIN)/python -m pytest -q tests/lab

engine-packages: $(VENV)/.engines-installed

$(VENV)/.engines-installed: $(VENV)/.test-installed
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dask]'
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[ray]'
	@touch $@

# Batch systems on this host. They need root and Debian packages (.ci/run has their names); without them it says so and skips.
# Clusters of Dask and Ray need no root.
engines: engine-packages
	GSPC_ENGINES=1 $(BIN)/python -m pytest -q -rs -n 2 --dist loadfile tests/engines

# Bridges to tools of others, with these; what cannot be installed is skipped, saying so.
BRIDGES := joblib scikit-learn 'dask[array]' xarray scipy emcee snakemake opentelemetry-sdk opentelemetry-exporter-otlp-proto-http '--editable plugins/snakemake-executor-plugin-gspc' s3fs 'moto[server]'

bridge-packages: $(VENV)/.bridges-installed

$(VENV)/.bridges-installed: $(VENV)/.test-installed
	-for package in $(BRIDGES); do $(BIN)/python -m pip install --quiet --disable-pip-version-check $$package || true; done
	@touch $@

bridges: bridge-packages
	$(BIN)/python -m pytest -q -rs -n 2 --dist loadfile -k bridges tests/bridges tests/docs/test_snippets.py
	$(BIN)/python -m pytest -q -rs -n 2 plugins || test $$? = 5  # 5: all of it was skipped

# The source distribution builds the wheel, and both install into environments that have nothing but Python.
package: $(VENV)/.test-installed
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check hatchling
	GSPC_PACKAGE=1 $(BIN)/python -m pytest -q -rs tests/package

# gspc-top and, after make site, the search of the site in a real browser: needs the Debian package chromium; without it it says so and skips.
browser: $(VENV)/.test-installed
	$(BIN)/python -m pytest -q -rs tests/e2e/test_browser.py

style: $(VENV)/.style-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest -q $(STYLE)
	$(BIN)/mypy

# Whether everything public has a type that all type checkers read the same. Pyright runs on node, which is in a package, too; where
# they are not to be had it says so and skips. What it looks at is the package of the python that comes first in PATH. What is only
# partially unknown is so through what it lists.
types: $(VENV)/.style-installed
	@if ! { $(BIN)/python -m pip install --quiet --disable-pip-version-check 'pyright[nodejs]' && $(BIN)/pyright --version; } >/dev/null; then \
		echo "the types were not verified: the package pyright is not to be had" >&2; \
	elif found=$$(PATH="$(abspath $(BIN)):$$PATH" $(BIN)/pyright --verifytypes gspc_trio --ignoreexternal); then \
		echo "$$found" | grep '^Type completeness'; \
	else { echo "$$found" | grep error: | grep -v 'partially unknown$$' || echo "$$found"; echo "$$found" | grep '^Type completeness'; } >&2; exit 1; fi

docs: $(VENV)/.installed
	$(BIN)/python docs/generate.py

# docs/ as a site, in the folder site, which needs no network to be built or read: open site/index.html.
# A broken link, a page that docs/README.md does not list and a diagram that cannot be drawn fail it.
site: $(VENV)/.site-installed
	rm -rf site
	$(BIN)/python -m sphinx -b html -W --keep-going -q -E -d $(VENV)/site -c docs/site docs site
	$(BIN)/python -m pytest -q tests/docs/test_site.py

# The pictures of docs/tui.md and the recorded run of examples/, from a real run.
screenshots: $(VENV)/.installed
	$(BIN)/python docs/screenshots.py

simulate: $(VENV)/.test-installed
	$(BIN)/python -m gspc_trio.testing --seeds 200
	$(BIN)/python -m pytest -q -n logical --maxschedchunk 2 $(SIMULATED)

# A hunt through clusters whose size is drawn from the seed, too.
hunt: $(VENV)/.installed
	$(BIN)/python -m gspc_trio.testing --seed 1000 --seeds 200 --any-shape

# Looks for every mutant of tests/mutants with its nearest tests and by simulating; hours. For some of them:
# .venv/bin/python -m tests.mutants.run --only WORDS --seeds 100
mutants: $(VENV)/.test-installed
	$(BIN)/python -m tests.mutants.run

DURATION ?= 60

chaos: $(VENV)/.installed
	$(BIN)/python -m gspc_trio.testing.chaos --duration $(DURATION)

hostile: $(VENV)/.installed
	$(BIN)/python -m gspc_trio.testing.hostile --messages 100000

STARTS ?= 100

leaks: $(VENV)/.installed
	$(BIN)/python -m gspc_trio.testing.leaks --starts $(STARTS)
	$(BIN)/python -m gspc_trio.testing.leaks --starts $(STARTS) --stand-alone

bench: $(VENV)/.test-installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	$(BIN)/python bench/all.py --output docs/figures

bench-smoke: $(VENV)/.test-installed
	$(BIN)/python bench/all.py --small

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("gspc-trio needs Python 3.11 or newer, but $(PYTHON) is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	@$(PYTHON) -c 'import sys; sys.exit("gspc-trio runs on Linux, but this is " + sys.platform) if sys.platform != "linux" else None'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	$(BIN)/python -m compileall -q gspc_trio  # pip does it for what it copies: without it every start compiles
	@touch $@

$(VENV)/.test-installed: pyproject.toml $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@

$(VENV)/.style-installed: pyproject.toml $(VENV)/.test-installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[style]'
	@touch $@

$(VENV)/.site-installed: pyproject.toml $(VENV)/.test-installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[site]'
	@touch $@

clean:
	rm -rf $(VENV) site .pytest_cache .mypy_cache .ruff_cache .hypothesis
