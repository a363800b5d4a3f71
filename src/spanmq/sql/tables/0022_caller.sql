-- since 0.1.0
-- Proof of which role calls a function that runs with the rights of the schema's owner. Its entry, which runs with the rights of the
-- caller, inserts a row with a random number: roles may insert the number only, so that `role` is the role that calls. The function takes the
-- row out. Hence it is empty.
create table spanmq_call.caller (
    proof uuid primary key,
    role name not null default current_user
);
