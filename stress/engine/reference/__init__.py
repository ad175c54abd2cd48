"""The reference engine: allocator/ and linker/ driven in the call order of SGLang 0.5.22 and 0.5.23."""

from stress.engine.reference.build import build_reference

__all__ = ["build_reference"]
