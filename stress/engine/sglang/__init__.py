"""An engine made of a real SGLang tree: its own allocator, radix cache, request pool and linker wrapper."""
