// Submits a file and waits for the verdict: node submit.cjs FILE LEADERBOARD USER. Needs `npm install pg`.
// DATABASE_URL names the database, or PGHOST, PGUSER and PGDATABASE.
const { readFileSync } = require('node:fs');
const { basename } = require('node:path');
const { Client } = require('pg');

async function main([file, leaderboard, user]) {
  const url = process.env.DATABASE_URL;
  const client = new Client(url ? { connectionString: url } : {});
  await client.connect();
  try {
    const submitted = await client.query(
      `SELECT runner.submit(leaderboard => $1, user_id => $2, file_name => $3, code => $4, mode => 'test') AS id`,
      [leaderboard, user, basename(file), readFileSync(file)],
    );
    const id = submitted.rows[0].id;
    let wake = () => {};
    client.on('notification', () => wake());
    await client.query('LISTEN runner_events');
    for (;;) {
      // Before the question, so that nothing that happens after it is missed.
      const news = new Promise((resolve) => { wake = resolve; });
      const { rows: [now] } = await client.query(
        'SELECT state, phase, verdict, score, error FROM runner.status WHERE submission_id = $1', [id],
      );
      if (now.state === 'done' || now.state === 'cancelled') {
        console.log(`submission ${id}: ${now.verdict ?? now.state}`, now.score ?? '', now.error ?? '');
        return now.verdict === 'accepted' ? 0 : 1;
      }
      console.log(`submission ${id}: ${now.phase ?? now.state}`);
      // At least every five seconds: notifications may be lost.
      let timer;
      await Promise.race([news, new Promise((resolve) => { timer = setTimeout(resolve, 5000); })]);
      clearTimeout(timer);
    }
  } catch (error) {
    // Class KR: written for the user. Everything else is ours to mend.
    if (!error.code?.startsWith('KR')) throw error;
    console.log(error.message, error.hint ?? '');
    return 2;
  } finally {
    await client.end();
  }
}

if (process.argv.length !== 5) {
  console.error('usage: node submit.cjs FILE LEADERBOARD USER');
  process.exit(64);
}
main(process.argv.slice(2)).then((code) => process.exit(code));
