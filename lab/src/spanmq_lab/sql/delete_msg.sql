delete from msg_queue where msg_id = $1
