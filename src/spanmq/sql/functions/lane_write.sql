-- Made by tools/generate_lane.py. What lanes are: lane.sql. The number of a lane decides by halves: five looks for 32 of them.

create or replace function spanmq_core.count_lanes() returns int
language sql immutable as $$ select 32 $$;

-- Returns the id: a call that gives something can stand in an assignment, which costs half of a `perform`.
create or replace function spanmq_core.append_by_lane(
    lane int, id bigint, sent_at timestamptz, message jsonb, headers jsonb
) returns bigint
language plpgsql as $$
begin
    if lane <= 16 then
        if lane <= 8 then
            if lane <= 4 then
                if lane <= 2 then
                    if lane <= 1 then
                        insert into spanmq_core.lane_1 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    else
                        insert into spanmq_core.lane_2 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    end if;
                else
                    if lane <= 3 then
                        insert into spanmq_core.lane_3 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    else
                        insert into spanmq_core.lane_4 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    end if;
                end if;
            else
                if lane <= 6 then
                    if lane <= 5 then
                        insert into spanmq_core.lane_5 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    else
                        insert into spanmq_core.lane_6 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    end if;
                else
                    if lane <= 7 then
                        insert into spanmq_core.lane_7 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    else
                        insert into spanmq_core.lane_8 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    end if;
                end if;
            end if;
        else
            if lane <= 12 then
                if lane <= 10 then
                    if lane <= 9 then
                        insert into spanmq_core.lane_9 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    else
                        insert into spanmq_core.lane_10 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    end if;
                else
                    if lane <= 11 then
                        insert into spanmq_core.lane_11 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    else
                        insert into spanmq_core.lane_12 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    end if;
                end if;
            else
                if lane <= 14 then
                    if lane <= 13 then
                        insert into spanmq_core.lane_13 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    else
                        insert into spanmq_core.lane_14 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    end if;
                else
                    if lane <= 15 then
                        insert into spanmq_core.lane_15 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    else
                        insert into spanmq_core.lane_16 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    end if;
                end if;
            end if;
        end if;
    else
        if lane <= 24 then
            if lane <= 20 then
                if lane <= 18 then
                    if lane <= 17 then
                        insert into spanmq_core.lane_17 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    else
                        insert into spanmq_core.lane_18 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    end if;
                else
                    if lane <= 19 then
                        insert into spanmq_core.lane_19 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    else
                        insert into spanmq_core.lane_20 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    end if;
                end if;
            else
                if lane <= 22 then
                    if lane <= 21 then
                        insert into spanmq_core.lane_21 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    else
                        insert into spanmq_core.lane_22 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    end if;
                else
                    if lane <= 23 then
                        insert into spanmq_core.lane_23 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    else
                        insert into spanmq_core.lane_24 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    end if;
                end if;
            end if;
        else
            if lane <= 28 then
                if lane <= 26 then
                    if lane <= 25 then
                        insert into spanmq_core.lane_25 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    else
                        insert into spanmq_core.lane_26 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    end if;
                else
                    if lane <= 27 then
                        insert into spanmq_core.lane_27 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    else
                        insert into spanmq_core.lane_28 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    end if;
                end if;
            else
                if lane <= 30 then
                    if lane <= 29 then
                        insert into spanmq_core.lane_29 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    else
                        insert into spanmq_core.lane_30 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    end if;
                else
                    if lane <= 31 then
                        insert into spanmq_core.lane_31 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    else
                        insert into spanmq_core.lane_32 (msg_id, enqueued_at, message, headers) values (id, sent_at, message, headers);
                    end if;
                end if;
            end if;
        end if;
    end if;
    return id;
end $$;

-- Functions that return sets are streamed in a select list; in a from list they would be copied first.
create or replace function spanmq_core.append_run_by_lane(
    lane int, first_id bigint, last_id bigint, sent_at timestamptz, messages jsonb[]
) returns void
language plpgsql as $$
begin
    if lane <= 16 then
        if lane <= 8 then
            if lane <= 4 then
                if lane <= 2 then
                    if lane <= 1 then
                        insert into spanmq_core.lane_1 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    else
                        insert into spanmq_core.lane_2 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    end if;
                else
                    if lane <= 3 then
                        insert into spanmq_core.lane_3 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    else
                        insert into spanmq_core.lane_4 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    end if;
                end if;
            else
                if lane <= 6 then
                    if lane <= 5 then
                        insert into spanmq_core.lane_5 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    else
                        insert into spanmq_core.lane_6 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    end if;
                else
                    if lane <= 7 then
                        insert into spanmq_core.lane_7 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    else
                        insert into spanmq_core.lane_8 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    end if;
                end if;
            end if;
        else
            if lane <= 12 then
                if lane <= 10 then
                    if lane <= 9 then
                        insert into spanmq_core.lane_9 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    else
                        insert into spanmq_core.lane_10 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    end if;
                else
                    if lane <= 11 then
                        insert into spanmq_core.lane_11 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    else
                        insert into spanmq_core.lane_12 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    end if;
                end if;
            else
                if lane <= 14 then
                    if lane <= 13 then
                        insert into spanmq_core.lane_13 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    else
                        insert into spanmq_core.lane_14 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    end if;
                else
                    if lane <= 15 then
                        insert into spanmq_core.lane_15 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    else
                        insert into spanmq_core.lane_16 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    end if;
                end if;
            end if;
        end if;
    else
        if lane <= 24 then
            if lane <= 20 then
                if lane <= 18 then
                    if lane <= 17 then
                        insert into spanmq_core.lane_17 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    else
                        insert into spanmq_core.lane_18 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    end if;
                else
                    if lane <= 19 then
                        insert into spanmq_core.lane_19 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    else
                        insert into spanmq_core.lane_20 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    end if;
                end if;
            else
                if lane <= 22 then
                    if lane <= 21 then
                        insert into spanmq_core.lane_21 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    else
                        insert into spanmq_core.lane_22 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    end if;
                else
                    if lane <= 23 then
                        insert into spanmq_core.lane_23 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    else
                        insert into spanmq_core.lane_24 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    end if;
                end if;
            end if;
        else
            if lane <= 28 then
                if lane <= 26 then
                    if lane <= 25 then
                        insert into spanmq_core.lane_25 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    else
                        insert into spanmq_core.lane_26 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    end if;
                else
                    if lane <= 27 then
                        insert into spanmq_core.lane_27 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    else
                        insert into spanmq_core.lane_28 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    end if;
                end if;
            else
                if lane <= 30 then
                    if lane <= 29 then
                        insert into spanmq_core.lane_29 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    else
                        insert into spanmq_core.lane_30 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    end if;
                else
                    if lane <= 31 then
                        insert into spanmq_core.lane_31 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    else
                        insert into spanmq_core.lane_32 (msg_id, enqueued_at, message) select generate_series(first_id, last_id), sent_at, unnest(messages);
                    end if;
                end if;
            end if;
        end if;
    end if;
end $$;
