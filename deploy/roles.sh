#!/bin/sh
# Runs once, in the container of the database, when its volume is empty: a role each for the schema, workers and the service.
# On a server of your own run these statements as its administrator.
set -eu
export SECRETS="${SECRETS:-/run/secrets}"
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --username "${POSTGRES_USER:-postgres}" --dbname postgres <<'SQL'
-- Not as arguments, which every process of the machine can read.
\set owner `cat "$SECRETS/owner"`
\set worker `cat "$SECRETS/worker"`
\set service `cat "$SECRETS/service"`
create role shop_owner login password :'owner';
create role shop_worker login password :'worker';
create role shop_service login password :'service';
-- Optional: maintenance then knows which transactions of other roles hold a snapshot.
grant pg_read_all_stats to shop_owner;
create database shop owner shop_owner;
SQL
