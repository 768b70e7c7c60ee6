"""What runs tasks: supervisor, pool process, executors, steward."""
