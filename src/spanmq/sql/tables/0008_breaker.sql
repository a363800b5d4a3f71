-- What a worker reports of its open circuit breaker, and that a command has closed it. `opening` is a number that the
-- worker draws each time that it opens: what was closed is this opening, not one that follows.
alter table spanmq_core.breaker
    add column opening bigint not null default 0,
    add column error text check (octet_length(error) <= 10000),
    add column is_closed boolean not null default false;
