"""What is under test, whole: allocator, prefix cache, request rows and linker behind one contract."""
