update msg_queue set time_processed = clock_timestamp() where msg_id = $1
