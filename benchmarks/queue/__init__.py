"""The queue's routines against the bare layouts they could have been: ratios with a bar each, in one run."""
