"""What watches a run: events, the shadow ledger, the rules, the marks. Imports neither allocator nor engine."""
