"""Traces and generated sessions -> the fixed plan of a run, with page keys and tokens for each request."""

from stress.workload.errors import TraceError, WorkloadError
from stress.workload.plan import Plan, build_plan

__all__ = ["Plan", "TraceError", "WorkloadError", "build_plan"]
