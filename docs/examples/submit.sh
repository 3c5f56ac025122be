#!/bin/sh
# Submits a file and waits for the verdict: submit.sh FILE LEADERBOARD USER. Needs psql; DATABASE_URL names the database.
set -eu
[ $# = 3 ] || { echo "usage: submit.sh FILE LEADERBOARD USER" >&2; exit 64; }
ask() { psql "${DATABASE_URL:-}" --no-psqlrc --quiet --no-align --tuples-only -v ON_ERROR_STOP=1 "$@"; }

# The file goes through standard input: an argument has not room for a million bytes.
id=$(
    { printf "SELECT runner.submit(leaderboard => :'board', user_id => :'user',
        file_name => :'name', mode => 'test', code => decode('"; base64 <"$1"; printf "', 'base64'));\n"; } |
        ask -v board="$2" -v user="$3" -v name="$(basename "$1")"
)
while :; do
    state=$(echo "SELECT coalesce(verdict, state) FROM runner.status WHERE submission_id = :id" | ask -v id="$id")
    case $state in
        queued | running) sleep 1 ;;
        *) break ;;
    esac
done
echo "submission $id: $state"
[ "$state" = accepted ]
