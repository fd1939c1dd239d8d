#!/bin/sh
# Run once by the PostgreSQL image when its volume is empty. Creates an ordinary role that owns the
# database and may create the logins that serve requests (their passwords are derived from its own).
# Hlas never gets the superuser.
set -eu
psql -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" -v password="$HLAS_DATABASE_PASSWORD" <<'SQL'
create role hlas login createrole password :'password';
create database hlas owner hlas;
SQL
