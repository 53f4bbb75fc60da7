"""The suite: pysqlbox, other queues and bare layouts side by side, from statements to whole workers."""
