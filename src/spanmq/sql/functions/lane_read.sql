-- Made by tools/generate_lane.py. What lanes are: lane.sql. The number of a lane decides by halves: five looks for 32 of them.

-- What the log has of a message; null if there is no row.
create or replace function spanmq_core.fetch_by_lane(lane int, id bigint) returns spanmq_core.logged
language plpgsql as $$
declare
    this spanmq_core.logged;
begin
    if lane <= 16 then
        if lane <= 8 then
            if lane <= 4 then
                if lane <= 2 then
                    if lane <= 1 then
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_1 l where l.msg_id = id;
                    else
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_2 l where l.msg_id = id;
                    end if;
                else
                    if lane <= 3 then
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_3 l where l.msg_id = id;
                    else
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_4 l where l.msg_id = id;
                    end if;
                end if;
            else
                if lane <= 6 then
                    if lane <= 5 then
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_5 l where l.msg_id = id;
                    else
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_6 l where l.msg_id = id;
                    end if;
                else
                    if lane <= 7 then
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_7 l where l.msg_id = id;
                    else
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_8 l where l.msg_id = id;
                    end if;
                end if;
            end if;
        else
            if lane <= 12 then
                if lane <= 10 then
                    if lane <= 9 then
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_9 l where l.msg_id = id;
                    else
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_10 l where l.msg_id = id;
                    end if;
                else
                    if lane <= 11 then
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_11 l where l.msg_id = id;
                    else
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_12 l where l.msg_id = id;
                    end if;
                end if;
            else
                if lane <= 14 then
                    if lane <= 13 then
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_13 l where l.msg_id = id;
                    else
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_14 l where l.msg_id = id;
                    end if;
                else
                    if lane <= 15 then
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_15 l where l.msg_id = id;
                    else
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_16 l where l.msg_id = id;
                    end if;
                end if;
            end if;
        end if;
    else
        if lane <= 24 then
            if lane <= 20 then
                if lane <= 18 then
                    if lane <= 17 then
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_17 l where l.msg_id = id;
                    else
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_18 l where l.msg_id = id;
                    end if;
                else
                    if lane <= 19 then
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_19 l where l.msg_id = id;
                    else
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_20 l where l.msg_id = id;
                    end if;
                end if;
            else
                if lane <= 22 then
                    if lane <= 21 then
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_21 l where l.msg_id = id;
                    else
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_22 l where l.msg_id = id;
                    end if;
                else
                    if lane <= 23 then
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_23 l where l.msg_id = id;
                    else
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_24 l where l.msg_id = id;
                    end if;
                end if;
            end if;
        else
            if lane <= 28 then
                if lane <= 26 then
                    if lane <= 25 then
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_25 l where l.msg_id = id;
                    else
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_26 l where l.msg_id = id;
                    end if;
                else
                    if lane <= 27 then
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_27 l where l.msg_id = id;
                    else
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_28 l where l.msg_id = id;
                    end if;
                end if;
            else
                if lane <= 30 then
                    if lane <= 29 then
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_29 l where l.msg_id = id;
                    else
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_30 l where l.msg_id = id;
                    end if;
                else
                    if lane <= 31 then
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_31 l where l.msg_id = id;
                    else
                        select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_32 l where l.msg_id = id;
                    end if;
                end if;
            end if;
        end if;
    end if;
    return this;
end $$;
