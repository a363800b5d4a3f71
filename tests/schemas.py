"""In which schema a function is that a test calls by a name that it was given."""

PGMQ = frozenset(
    [
        "archive",
        "bind_topic",
        "convert_archive_partitioned",
        "create",
        "create_fifo_index",
        "create_fifo_indexes_all",
        "create_non_partitioned",
        "create_partitioned",
        "create_unlogged",
        "delete",
        "detach_archive",
        "disable_notify_insert",
        "drop_queue",
        "enable_notify_insert",
        "list_notify_insert_throttles",
        "list_queues",
        "list_topic_bindings",
        "metrics",
        "metrics_all",
        "pop",
        "purge_queue",
        "read",
        "read_grouped",
        "read_grouped_head",
        "read_grouped_head_with_poll",
        "read_grouped_rr",
        "read_grouped_rr_with_poll",
        "read_grouped_with_poll",
        "read_with_poll",
        "send",
        "send_batch",
        "send_batch_topic",
        "send_topic",
        "set_vt",
        "test_routing",
        "unbind_topic",
        "update_notify_insert",
        "validate_queue_name",
    ]
)


def qualified(call: str) -> str:
    """Return the call with its schema: `pgmq` for a function that PGMQ has, `spanmq` for one of ours."""
    return f"pgmq.{call}" if call.partition("(")[0] in PGMQ else f"spanmq.{call}"
