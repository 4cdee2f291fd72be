from __future__ import annotations

import gc
from random import Random
from weakref import ref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio.components.coallocation.language import JobOrder, order_of
from gspc_trio.components.coallocation.language import parse_coallocation as parse
from gspc_trio.components.coallocation.text import print_text
from gspc_trio.components.coallocation.tree import (
    DEPTH_MAX,
    JOBS_MAX,
    TEXT_BYTES_MAX,
    DescribedJob,
    Multistage,
    NamedJob,
    Option,
    Request,
    RslError,
    SingleStage,
)
from gspc_trio.components.coallocation.xml_form import print_xml
from tests.components.coallocation.long import look_at_text, random_text
from tests.components.coallocation.support import REQUESTS


@given(REQUESTS)
@settings(max_examples=25)
def test_text_and_xml_give_the_tree_back(tree: Request) -> None:
    text, xml = print_text(tree), print_xml(tree)
    assert parse(text) == parse(xml) == parse(text.encode()) == tree
    assert parse(text.encode("utf-8-sig")) == parse(xml.encode("utf-8-sig")) == tree
    assert print_text(parse(text)) == text
    assert print_xml(parse(xml)) == xml


@pytest.mark.parametrize("seed", range(2))
def test_whatever_is_read_gives_a_request_or_an_error_in_the_text(seed: int) -> None:
    random = Random(seed)
    found = [look_at_text(random_text(random), random) for _ in range(1500)]
    assert any(found)


@given(st.text(max_size=12) | st.text("()*+&a=\"' \n,<>", max_size=12))
@settings(max_examples=60)
def test_texts_of_few_characters_give_a_request_or_an_error(text: str) -> None:
    look_at_text(text, Random(0))


MEANT = "*(*(*(*(a))(b)(c))(d))(e)"


def test_the_request_of_figure_5_is_the_one_that_is_meant() -> None:
    with pytest.raises(RslError, match="line 1, column 20: '\\)' cannot be here") as caught:
        parse("*(*(*(a))(b)(c))(d))(e)")
    assert (caught.value.line, caught.value.column) == (1, 20)
    a, b, c, d, e = map(NamedJob, "abcde")
    lowest = Multistage((Multistage((a,)), b, c))
    assert parse(MEANT) == Multistage((Multistage((lowest, d)), e))


def test_figure_3_as_xml_is_a_single_stage() -> None:
    figure = """<coallocate name="climate-model">
  <resource name="hot.mcs.anl.gov" type="compute">
    <executable value="climate.out"/>
    <directory value="/gregor/coalloc"/>
    <arguments value="europe"/>
  </resource>
  <resource name="cold.iit.edu" type="compute" executable="climate.out" MaxTime="60"/>
</coallocate>
"""
    hot = DescribedJob(
        (
            Option("contact", ("hot.mcs.anl.gov",)),
            Option("executable", ("climate.out",)),
            Option("directory", ("/gregor/coalloc",)),
            Option("arguments", ("europe",)),
        )
    )
    cold = DescribedJob(
        (
            Option("contact", ("cold.iit.edu",)),
            Option("executable", ("climate.out",)),
            Option("max_time", ("60",)),
        )
    )
    assert parse(figure) == SingleStage((hot, cold))
    with pytest.raises(RslError, match="line 2, column 12: this is no XML"):
        parse('<coallocate>\n  <resource="hot.mcs.anl.gov" type="compute"/>\n</coallocate>')


def test_quotes_are_doubled_and_names_of_options_ignore_case() -> None:
    text = '&(ARGUMENTS="say ""hi""" \'it\'\'s\' a,b)(MaxTime<=5)(bar_rierTimeout = 1)'
    assert parse(text) == DescribedJob(
        (
            Option("arguments", ('say "hi"', "it's", "a,b")),
            Option("max_time", ("5",), "<="),
            Option("barrier_timeout", ("1",)),
        )
    )


@pytest.mark.parametrize(
    ("text", "line", "column", "said"),
    [
        ("", 1, 1, "the text ends here, and '*', '+', '&' or the name of a job is missing"),
        ("(a)", 1, 1, "'(' cannot be here; '*', '+', '&' or the name of a job"),
        ("(* c *)*(a)", 1, 1, "'(' cannot be here"),
        ("*", 1, 2, "the text ends here, and '(' and a stage is missing"),
        ("*(on_error=2)", 1, 14, "the text ends here, and '(' and a stage"),
        ("*()", 1, 3, "')' cannot be here; '*', '+', '&', the name of a job or that of an option may"),
        ("*('a')", 1, 3, "\"'a'\" cannot be here; '*', '+', '&', the name of a job or that of an option"),
        ("*(a", 1, 4, "the text ends here, and '=', '!=', '<', '<=', '>', '>=', '(' or ')' is missing"),
        ("*(a b)", 1, 5, "'b' cannot be here; '=', '!=', '<', '<=', '>', '>=', '(' or ')' may"),
        ("*(a(count=1)", 1, 13, "the text ends here, and '(' or ')' is missing"),
        ("*(&(count=1)b)", 1, 13, "'b' cannot be here; '(' or ')' may"),
        ("*(*(a)b)", 1, 7, "'b' cannot be here; '(' or ')' may"),
        ("*(on_error=2", 1, 13, "the text ends here, and a value or ')' is missing"),
        ("+(on_error=2 +)", 1, 14, "'+' cannot be here; a value or ')' may"),
        ("+(a b)", 1, 5, "'b' cannot be here; '=', '!=', '<', '<=', '>', '>=', '(' or ')' may"),
        ("+(a(count=1)+)", 1, 13, "'+' cannot be here; '(' or ')' may"),
        ("+(&)", 1, 4, "')' cannot be here; '(' and an option may"),
        ("+()", 1, 3, "')' cannot be here; '&', the name of a job or that of an option may"),
        ("+(a)(on_error=1)b", 1, 17, "'b' cannot be here; '(' or the end may"),
        ("'a'", 1, 1, "\"'a'\" cannot be here; '*', '+', '&' or the name of a job may"),
        ("|", 1, 1, "'|' cannot be here; '*', '+'"),
        ("a|b^", 1, 4, "'^' cannot be here; '(' or the end may"),
        ("a~b", 1, 2, "'~' cannot be here; '(' or the end may"),
        ("a b", 1, 3, "'b' cannot be here; '(' or the end may"),
        ("a(", 1, 3, "the text ends here, and the name of an option is missing"),
        ("a('count'=1)", 1, 3, "\"'count'\" cannot be here; the name of an option may"),
        ("a(count", 1, 8, "the text ends here, and '=', '!=', '<', '<=', '>' or '>=' is missing"),
        ("a(count!2)", 1, 8, "'!' cannot be here; '=', '!='"),
        ("a(count=2", 1, 10, "the text ends here, and a value or ')' is missing"),
        ("a(count=|2)", 1, 9, "'|' cannot be here; a value may"),
        ('a(executable="x', 1, 14, "this quote is never closed: a value may stand here"),
        ("a(environment=(A b", 1, 19, "the text ends here, and a value or ')' is missing"),
        ("*a", 1, 2, "'a' cannot be here; '(' and a stage"),
        ("*(a)\n (b)+", 2, 5, "'+' cannot be here; '(' or the end"),
        ("+(*(a))", 1, 3, "'*' cannot be here; '&', the name of a job"),
        ("+(+(a))", 1, 3, "'+' cannot be here; '&', the name of a job"),
        ("+", 1, 2, "and '(' and a part is missing"),
        ("&", 1, 2, "and '(' and an option is missing"),
        ("&(a)", 1, 4, "')' cannot be here; '=', '!='"),
        ("&(+=a)", 1, 3, "'+' cannot be here; the name of an option"),
        ("&(count=)", 1, 9, "')' cannot be here; a value"),
        ("&(count==2)", 1, 9, "'=' cannot be here; a value"),
        ("&(environment=(A ()))", 1, 19, "')' cannot be here; a value"),
        ("&(executable='x)", 1, 14, "this quote is never closed"),
        ("&(executable=a^b)", 1, 15, "'^' cannot be here"),
        ("a(count=1)(Count=2)", 1, 12, "count is there twice"),
        ("a(executble=x)", 1, 3, "there is no option 'executble' (did you mean 'executable'?)"),
        ("a(count=0)", 1, 9, "count is a whole number from 1"),
        ("a(count>=2)", 1, 3, "count takes =, not >="),
        ("a(memory=2 parsecs)", 1, 12, "memory is a size"),
        ("a(max_time=0)", 1, 12, "max_time is a number of seconds"),
        ("a(max_time=nan)", 1, 12, "max_time is a number of seconds"),
        ("a(start=later)", 1, 9, "start is together or inside"),
        ("a(on_error=m)", 1, 12, "on_error is a whole number"),
        ("a(attempts=1 2)", 1, 14, "attempts takes one value"),
        ("a(environment=A)", 1, 15, "environment takes pairs"),
        ("+(count=2)(a)", 1, 3, "count is an option of a & or a name, and not of a +"),
        ("+(a(wait=1))", 1, 5, "wait is an option of a &, a name or a +, and not of a part of a +"),
        ("*(wait=1)(a)", 1, 3, "wait is an option of a &, a name or a +, and not of a *"),
        ("*(a)(b(wait=1,,2))", 1, 15, "a number of a job is missing at this comma"),
        ("*(a)(b(wait=,1))", 1, 13, "a number of a job is missing at this comma"),
        ("*(a)(b(wait=1,))", 1, 14, "a number of a job is missing at this comma"),
        ("*(a)(b(wait=a))", 1, 13, "wait takes numbers of jobs"),
        ("*(a)(b(wait='1, 3'))", 1, 17, "there is no job 3: they are numbered from 1 to 2"),
        ("*(a)(b(wait=1,2))", 1, 15, "job 2 waits for itself"),
        ("*(a)(b(wait='1\n, 3'))", 2, 3, "there is no job 3"),
        ("*(a(wait=2))(b(wait=3))(c(wait=2,1))", 1, 32, "circle"),
        ("a\x01", 1, 2, "a character that no request has"),
    ],
)
def test_errors_name_the_place_and_what_may_stand_there(text: str, line: int, column: int, said: str) -> None:
    with pytest.raises(RslError) as caught:
        parse(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("xml", "line", "column", "said"),
    [
        ("<job/>", 1, 1, "<job> has neither ref nor options"),
        ("<coallocate/>", 1, 1, "<coallocate> has nothing to run"),
        ("<coallocate><x/></coallocate>", 1, 13, "there is no option 'x'"),
        ("<resource name='a'/>", 1, 1, "<resource> cannot be here; <coallocate> or <job>"),
        ("<coallocate>\n<resource name='a'/><job ref='b'/></coallocate>", 2, 21, "cannot be beside"),
        ("<job ref='a'><job ref='b'/></job>", 1, 14, "<job> cannot be in <job>"),
        ("<job ref='a'><count/></job>", 1, 14, "<count> needs an attribute value, or <value>"),
        ("<job ref='a'><count value='1' x='2'/></job>", 1, 14, "<count> has no attribute 'x'"),
        ("<job ref='a'><count value='1' op='~'/></job>", 1, 14, "op is one of"),
        ("<job ref='a'>b</job>", 1, 14, "text cannot be here in <job>"),
        ("<job ref='a b'/>", 1, 1, "cannot be the name of a job"),
        ("<job ref='a' xmlns='urn:x'/>", 1, 1, "has a namespace"),
        ("<job ref='a' cuont='1'/>", 1, 14, "there is no option 'cuont'"),
        ("<job ref='a' wait='1,,'/>", 1, 22, "a number of a job is missing"),
        ("<!DOCTYPE x [<!ENTITY a 'b'>]><job ref='a'/>", 1, 1, "document types and entities are refused"),
        ("<job ref='a'/>x", 1, 15, "this is no XML"),
        ("<job ref='a'", 1, 1, "this is no XML: unclosed token"),
    ],
)
def test_errors_of_xml_name_the_place(xml: str, line: int, column: int, said: str) -> None:
    with pytest.raises(RslError) as caught:
        parse(xml)
    assert (caught.value.line, caught.value.column) == (line, column), caught.value
    assert said in caught.value.message


def test_limits() -> None:
    deep = "*(" * (DEPTH_MAX - 1) + "a" + ")" * (DEPTH_MAX - 1)
    assert parse(f"*({deep})")
    with pytest.raises(RslError, match=f"line 1, column 130: parentheses are nested more than {DEPTH_MAX}"):
        parse(f"*(*({deep}))")
    with pytest.raises(RslError, match="more than 16 MiB"):
        parse(" " * (TEXT_BYTES_MAX + 1))
    with pytest.raises(RslError, match="more than 100,000 jobs"):
        parse("*" + "(a)" * (JOBS_MAX + 1))
    with pytest.raises(RslError, match="line 2, column 1: the text is no UTF-8"):
        parse(b"a\n\xff")
    with pytest.raises(TypeError, match="text or bytes"):
        parse(12)


@pytest.mark.parametrize("text", ["(a", "<coallocate><job ref='a'/></coallocate>"])
def test_garbage_is_collected_while_requests_are_read(text: str) -> None:
    class Circle:
        def __init__(self) -> None:
            self.itself = self

    gc.collect()
    circles = []
    for _ in range(4 * gc.get_threshold()[0]):
        circles.append(ref(Circle()))
        look_at_text(text, Random(0))
    assert sum(circle() is None for circle in circles) > len(circles) / 4


def test_a_file_of_xml_leaves_no_garbage() -> None:
    gc.collect()
    parse("<coallocate><job ref='a'/></coallocate>")
    assert gc.collect() == 0


def test_stages_imply_an_order() -> None:
    assert order_of(parse(MEANT)).awaited == ((), (1,), (1,), (2, 3), (4,))
    gated = order_of(parse("*(*(a)(b))(c)(d)"))
    assert gated == JobOrder(4, ((), (), (5,), (5,), (1, 2)))
    assert gated.waits(3) == gated.waits(4) == (1, 2)


def test_waits_alone_order() -> None:
    assert order_of(parse("*(a)(b)(c(wait=2))(d(wait = 1, 2))")) == JobOrder(4, ((), (), (2,), (1, 2)))
    assert order_of(parse("*(*(a)(b))(c(wait=2))")) == JobOrder(3, ((), (), (2,)))
