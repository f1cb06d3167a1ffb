"""What an error says and where it points, one pinned text for each way to get a schema wrong."""

from __future__ import annotations

import pickle

import pytest
from expecttest import TestCase

from dispatchlab.errors import ParseError
from dispatchlab.model.schema_parser import parse_name, parse_schema


def refusal(text: str) -> ParseError:
    try:
        parse_schema(text)
    except ParseError as error:
        return error
    raise AssertionError(f"accepted: {text}")


class TestSchemaErrors(TestCase):
    def test_nothing(self) -> None:
        self.assertExpectedInline(
            refusal("").sentence, """expected the name of an operator but found the end of the text"""
        )

    def test_a_type_of_another_case(self) -> None:
        self.assertExpectedInline(
            str(refusal("f(Tenser x) -> Tensor")),
            """\
expected a type (did you mean Tensor?) but found 'Tenser'
  f(Tenser x) -> Tensor
    ^^^^^^""",
        )

    def test_a_type_like_no_other(self) -> None:
        self.assertExpectedInline(
            str(refusal("f(Tensor x, Qwxyz y) -> Tensor")),
            """\
expected a type, such as Tensor, SymInt, int or Scalar, but found 'Qwxyz'
  f(Tensor x, Qwxyz y) -> Tensor
              ^^^^^""",
        )

    def test_an_argument_without_a_name(self) -> None:
        self.assertExpectedInline(
            str(refusal("f(Tensor) -> ()")),
            """\
expected the name of the argument but found ')'
  f(Tensor) -> ()
          ^""",
        )

    def test_a_keyword_as_a_name(self) -> None:
        self.assertExpectedInline(
            str(refusal("f(Tensor x, int in) -> ()")),
            """\
expected the name of the argument but found the keyword 'in'
  f(Tensor x, int in) -> ()
                  ^^""",
        )

    def test_no_arrow(self) -> None:
        self.assertExpectedInline(
            str(refusal("f(Tensor x) Tensor")),
            """\
expected '->' and the returns but found 'Tensor'
  f(Tensor x) Tensor
              ^^^^^^""",
        )

    def test_a_missing_comma(self) -> None:
        self.assertExpectedInline(
            str(refusal("f(Tensor x Tensor y) -> ()")),
            """\
expected ',' or ')' but found 'Tensor'
  f(Tensor x Tensor y) -> ()
             ^^^^^^""",
        )

    def test_a_trailing_comma(self) -> None:
        self.assertExpectedInline(
            str(refusal("f(Tensor x,) -> ()")),
            """\
expected a type but found ')'
  f(Tensor x,) -> ()
             ^""",
        )

    def test_a_default_that_is_no_value(self) -> None:
        self.assertExpectedInline(
            str(refusal("f(int x=Meen) -> ()")),
            """\
expected a default value (did you mean Mean?) but found 'Meen'
  f(int x=Meen) -> ()
          ^^^^""",
        )

    def test_a_default_that_does_not_fit(self) -> None:
        self.assertExpectedInline(
            str(refusal("f(int x=9223372036854775808) -> ()")),
            """\
expected a number that fits the type int but found '9223372036854775808'
  f(int x=9223372036854775808) -> ()
          ^^^^^^^^^^^^^^^^^^^""",
        )

    def test_a_default_of_another_type(self) -> None:
        self.assertExpectedInline(
            str(refusal("f(int[2] x=[1, 2.5]) -> ()")),
            """\
expected a list of int values but found 2.5 in it
  f(int[2] x=[1, 2.5]) -> ()
             ^^^^^^^^""",
        )

    def test_a_tensor_default(self) -> None:
        self.assertExpectedInline(
            str(refusal("f(Tensor x=1) -> ()")),
            """\
expected None, the only default of a Tensor, but found '1'
  f(Tensor x=1) -> ()
             ^""",
        )

    def test_a_type_without_defaults(self) -> None:
        self.assertExpectedInline(
            str(refusal("f(Dict(str, int) x=None) -> ()")),
            """\
expected no default, for Dict(str, int) cannot have one, but found the keyword 'None'
  f(Dict(str, int) x=None) -> ()
                     ^^^^""",
        )

    def test_a_device_that_is_none(self) -> None:
        self.assertExpectedInline(
            str(refusal("f(Device x='cude:1') -> ()")),
            """\
expected a device, such as 'cpu' or 'cuda:1' (did you mean cuda?) but found 'cude:1'
  f(Device x='cude:1') -> ()
             ^^^^^^^^""",
        )

    def test_an_escape_that_is_none(self) -> None:
        self.assertExpectedInline(
            str(refusal("f(str x='a\\xff') -> ()")),
            """\
expected a string whose escapes are \\\\ \\' \\" \\a \\b \\f \\n \\t \\v or three octal digits but found the escape \\x
  f(str x='a\\xff') -> ()
          ^^^^^^^""",
        )

    def test_a_string_that_does_not_end(self) -> None:
        self.assertExpectedInline(
            str(refusal("f(str x='abc) -> ()")),
            """\
expected a default value but found a string that does not end, '
  f(str x='abc) -> ()
          ^""",
        )

    def test_an_argument_without_default_after_one_with(self) -> None:
        self.assertExpectedInline(
            str(refusal("f(Tensor x, int n=3, Tensor y) -> ()")),
            """\
expected a default for 'y', for an argument in front of it has one, but found 'y'
  f(Tensor x, int n=3, Tensor y) -> ()
                              ^""",
        )

    def test_dots_in_the_middle(self) -> None:
        self.assertExpectedInline(
            str(refusal("f(..., Tensor x) -> ()")),
            """\
expected ')', for '...' is the last argument, but found 'Tensor'
  f(..., Tensor x) -> ()
         ^^^^^^""",
        )

    def test_dots_after_a_default(self) -> None:
        self.assertExpectedInline(
            str(refusal("f(int x=1, ...) -> ()")),
            """\
expected no default in front of '...' but found '1'
  f(int x=1, ...) -> ()
          ^""",
        )

    def test_a_second_namespace(self) -> None:
        self.assertExpectedInline(
            str(refusal("a::b::f(Tensor x) -> Tensor")),
            """\
expected the end of the text but found ':'
  a::b::f(Tensor x) -> Tensor
      ^""",
        )

    def test_an_overload_that_python_needs(self) -> None:
        self.assertExpectedInline(
            str(refusal("f.default(Tensor x) -> Tensor")),
            """\
expected an overload other than 'default' and names that start with '__' but found 'default'
  f.default(Tensor x) -> Tensor
    ^^^^^^^""",
        )

    def test_a_name_alone(self) -> None:
        self.assertExpectedInline(
            str(refusal("ns::f")),
            """\
expected an argument list, as in `name(Tensor x) -> Tensor`, but found the name of an operator alone
  ns::f
       ^""",
        )

    def test_a_character_of_no_token(self) -> None:
        self.assertExpectedInline(
            str(refusal("f(Tensor x) -> Tensor;")),
            """\
expected the end of the text but found a character that schemas do not use, ';'
  f(Tensor x) -> Tensor;
                       ^""",
        )

    def test_a_key_that_cannot_be_one(self) -> None:
        self.assertExpectedInline(
            str(refusal("f(Dict(int?, str) x) -> ()")),
            """\
expected a key that is an int, bool, float, complex, str, Tensor, Device or Any but found 'int?'
  f(Dict(int?, str) x) -> ()
         ^^^^""",
        )

    def test_a_union_of_one(self) -> None:
        self.assertExpectedInline(
            str(refusal("f(Union(int, int) x) -> ()")),
            """\
expected another type but found 'Union': a union needs two different types
  f(Union(int, int) x) -> ()
    ^^^^^^^^^^^^^^^""",
        )

    def test_a_class_that_nobody_registered(self) -> None:
        self.assertExpectedInline(
            str(refusal("f(__torch__.torch.classes.c10d.ProcesGroup x) -> ()")),
            """\
expected a custom class that is known (did you mean c10d.ProcessGroup?) but found 'c10d.ProcesGroup'
  f(__torch__.torch.classes.c10d.ProcesGroup x) -> ()
                            ^^^^^^^^^^^^^^^^""",
        )

    def test_a_cpp_type(self) -> None:
        self.assertExpectedInline(
            self.cpp_type(),
            """\
expected 'int' or 'SymInt' but found 'int64_t'
  f(int64_t x) -> ()
    ^^^^^^^""",
        )

    def cpp_type(self) -> str:
        try:
            parse_schema("f(int64_t x) -> ()", typevars=False)
        except ParseError as error:
            return str(error)
        return "accepted"

    def test_a_schema_where_a_name_is_wanted(self) -> None:
        with pytest.raises(ParseError) as refused:
            parse_name("ns::f(Tensor x) -> Tensor")
        self.assertExpectedInline(
            str(refused.value),
            """\
expected the name of an operator alone but found a schema
  ns::f(Tensor x) -> Tensor
       ^^^^^^^^^^^^^^^^^^^^""",
        )

    def test_the_caret_is_on_its_own_line(self) -> None:
        self.assertExpectedInline(
            str(refusal("f(\n  Tensor x,\n  int y=oops,\n) -> ()")),
            """\
expected a default value but found 'oops'
    int y=oops,
          ^^^^""",
        )

    def test_a_line_end_in_the_middle(self) -> None:
        self.assertExpectedInline(
            str(refusal("f(Tensor x)\n-> Tensor")),
            """\
expected '->' and the returns but found a line end
  f(Tensor x)
             ^""",
        )

    def test_the_offset_counts_characters(self) -> None:
        error = refusal("f(str é='é', Qwxyz y) -> ()".replace(" é=", " e="))
        assert (error.at, error.width, error.text[error.at : error.at + error.width]) == (13, 5, "Qwxyz")

    def test_a_refusal_survives_pickling(self) -> None:
        error = refusal("f(Tensor x, Qwxyz y) -> Tensor")
        again = pickle.loads(pickle.dumps(error))
        assert (str(again), again.at, again.width) == (str(error), 12, 5)
