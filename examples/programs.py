"""External programs in a small graph: the vocabulary of some files, by tr, sort and wc.

gspc-jobserver run examples/programs.py --set path=DIR --set folder=vocabulary

words, once for each file --> merge --> count
                                    --> clean
"""

from collections.abc import Mapping
from pathlib import Path

from gspc_trio import Net, Program, Workflow, take

HERE = Path(__file__).parent
WORDS = r"""tr -cs A-Za-z '\n' < "$1" | tr A-Z a-z | grep . | sort -u > "$2" """
BYTES = {"LC_ALL": "C"}  # a byte is a letter, and they are sorted as in Python


def workflow(path: Path = HERE, pattern: str = "*.py", folder: Path = Path("vocabulary")) -> Workflow:
    """Write all words of the files under ``path`` to the file ``words`` in ``folder``, and count them."""
    files = [str(file.resolve()) for file in sorted(path.glob(pattern)) if file.is_file()]
    if not files:
        raise ValueError(f"there is no file {path / pattern}")
    folder.mkdir(exist_ok=True)
    work = folder.resolve()
    names = [f"words.{number}" for number in range(len(files))]

    net = Net("programs")
    todo, free_names = net.input("files"), net.place("names", names)
    written, merged, unneeded = net.place("written"), net.place("merged"), net.place("unneeded")

    words = Program(["sh", "-c", WORDS, "words", "{file}", "{name}"], BYTES, work)
    net.transition("words", words, {"file": todo, "name": free_names}, {"exit_status": written})

    merge = Program(["sort", "-m", "-u", "-o", "words", *names], BYTES, work)
    net.transition("merge", merge, {"_all": take(written, len(files))}, [merged, unneeded])

    count = Program(["wc", "-l", "words"], working_directory=work)
    net.transition("count", count, {"_after": merged}, {"stdout": net.output("count")})

    clean = Program(["rm", *names], working_directory=work)
    net.transition("clean", clean, {"_after": unneeded})

    def report(outputs: Mapping[str, list[str]]) -> None:
        number, _ = outputs["count"][0].split()
        print(f"{number} different words in {folder / 'words'}")

    return Workflow(net, {"files": files}, report)
