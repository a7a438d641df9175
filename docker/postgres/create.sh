#!/bin/sh
# Run once by the image, as the superuser, when it initialises its volume: a role for the application, which is no
# superuser, and a database of its own, so that it may create Handfast's two tables.
set -eu
psql --username "${POSTGRES_USER:-postgres}" --dbname postgres --set ON_ERROR_STOP=1 \
    --set password="$(cat /run/secrets/app_password)" <<'SQL'
CREATE ROLE app LOGIN PASSWORD :'password';
CREATE DATABASE ledger OWNER app;
SQL
