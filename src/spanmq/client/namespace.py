"""The namespaces of a client, as attributes that `dir` lists and `help` describes."""

from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class Namespace(Generic[T]):
    """An attribute that holds an object of one class, and has its documentation."""

    def __init__(self, kind: type[T]) -> None:
        self.kind = kind
        summary = str(kind.__doc__).partition("\n")[0]
        methods = ", ".join(name for name in vars(kind) if not name.startswith("_"))
        self.__doc__ = f"{summary}\n\nIt has {methods}. `help` of one describes it."

    def __set_name__(self, _: type, name: str) -> None:
        """Remember where the object is stored."""
        self._place = f"_{name}"

    @overload
    def __get__(self, owner: None, kind: Any = None) -> Self: ...
    @overload
    def __get__(self, owner: object, kind: Any = None) -> T: ...
    def __get__(self, owner: object | None, kind: Any = None) -> Self | T:
        """Return the object."""
        if owner is None:
            return self
        value: T = owner.__dict__[self._place]
        return value

    def __set__(self, owner: object, value: T) -> None:
        """Store the object."""
        owner.__dict__[self._place] = value
