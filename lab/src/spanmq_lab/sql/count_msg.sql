select count(*) from msg_queue where status = 'N'
