"""The state graph as a picture: as DOT, and as SVG laid out by Graphviz where it is installed.

- picture: what is drawn, before anything has a position: boxes, lines, legends;
- dot: a picture in the language of Graphviz, for files and for the program that lays it out;
- layout: positions by Graphviz, or plain columns without it;
- svg: a picture with positions as SVG, for a file by itself or inside of a page.
"""

from __future__ import annotations

from dispatchlab.questions.order.state_graph import StateGraph
from dispatchlab.questions.order.state_picture.dot import dot_text
from dispatchlab.questions.order.state_picture.layout import laid_out
from dispatchlab.questions.order.state_picture.picture import picture_of
from dispatchlab.questions.order.state_picture.svg import svg_document

__all__ = ["dot", "svg"]


def dot(graph: StateGraph) -> str:
    """The state graph in the language of Graphviz."""
    return dot_text(picture_of(graph))


def svg(graph: StateGraph, *, plain: bool = False) -> str:
    """The state graph as a picture that every browser shows.

    Args:
        graph: the states.
        plain: lay it out in columns, whether Graphviz is installed or not.
    """
    picture = picture_of(graph)
    return svg_document(laid_out(picture, plain=plain))
