"""What the pools would hold: stamps in place of keys and values, written and read where a model would do it."""

from stress.content.group_content import GroupContent
from stress.content.model import Content

__all__ = ["Content", "GroupContent"]
