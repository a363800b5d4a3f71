-- since 0.1.0
-- How far back any snapshot may see: see spanmq_core.horizon(). One row. `reached` is the horizon; it goes up to `mark` when the
-- virtual `transactions` have ended that were open when the mark was noted.
create table spanmq_core.horizon (
    reached xid8 not null,
    mark xid8 not null,
    transactions text[] not null
);
insert into spanmq_core.horizon (reached, mark, transactions) values ('3', '3', '{}');
alter table spanmq_core.horizon replica identity full;
