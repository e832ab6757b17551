import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, suite, test } from "node:test";
import { PostgresStore } from "../../../src/fanout/ledger/postgres/postgres-store.ts";
import { report, startMockResponses } from "../../support/models/mock-responses.ts";
import { postgresMissing, startPostgres, type TestPostgres } from "../../support/servers/postgres.ts";
import { runCli } from "../../support/servers/run-cli.ts";
import { skipUnless } from "../../support/system/skip-unless.ts";
import { catTable } from "../fanout-harness.ts";

const missing = (await postgresMissing()) ?? opensslMissing();
const skip = skipUnless(missing === null, missing ?? "");

function opensslMissing(): string | null {
  return spawnSync("openssl", ["version"]).status === 0 ? null : "openssl is not installed";
}

/** Whether the connections of others to this database are encrypted. */
const ENCRYPTED =
  "SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE datname = current_database() AND pid <> pg_backend_pid()";

suite("rights and encryption", { skip }, () => {
  let directory: string;
  let postgres: TestPostgres;
  before(async () => {
    directory = await mkdtemp(path.join(tmpdir(), "procwire-rights-"));
    const cert = path.join(directory, "cert.pem");
    const key = path.join(directory, "key.pem");
    const words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=elsewhere"];
    const made = spawnSync("openssl", [...words, "-keyout", key, "-out", cert], { encoding: "utf8" });
    assert.equal(made.status, 0, made.stderr);
    await chmod(key, 0o600);
    postgres = await startPostgres({ tls: { cert, key } });
  });
  after(async () => {
    await postgres.close();
    await rm(directory, { recursive: true, force: true, maxRetries: 10 });
  });

  async function query(url: string, sql: string): Promise<Record<string, unknown>[]> {
    const { default: pg } = await import("pg");
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    try {
      return (await client.query<Record<string, unknown>>(sql)).rows;
    } finally {
      await client.end();
    }
  }

  test("after `fanout migrate`, a role with rights on rows only runs jobs and works on them", async () => {
    const url = await postgres.createDatabase();
    await query(url, "CREATE ROLE clerk LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    const asClerk = url.replace("postgres@", "clerk@");
    const mock = await startMockResponses((request) => report(request));
    const options = { cwd: directory, env: { OPENAI_BASE_URL: mock.url, PROCWIRE_HOME: directory } };
    const fanout = ["fanout", "cats.csv", "--instruction", "about {name}", "--database-url", asClerk];
    try {
      await writeFile(path.join(directory, "cats.csv"), catTable(4));
      const early = await runCli(fanout, options);
      assert.equal(early.code, 1);
      assert.match(early.stderr, /permission denied .*; `procwire fanout migrate`, run by a role that may create/);

      const migrated = await runCli(["fanout", "migrate", "--grant-to", "clerk"], {
        ...options,
        env: { ...options.env, DATABASE_URL: url },
      });
      assert.equal(migrated.code, 0, migrated.stderr);
      const ended = await runCli(fanout, options);
      assert.equal(ended.code, 0, ended.stderr);
      assert.match(ended.stderr, /completed: 4 of 4 rows completed/);
      const worker = ["fanout", "worker", "--database-url", asClerk, "--exit-when-idle"];
      assert.equal((await runCli(worker, options)).code, 0);
    } finally {
      await mock.close();
    }
  });

  const ways: [string, "encrypted" | "plain" | RegExp][] = [
    ["", "encrypted"],
    ["?sslmode=prefer", "encrypted"],
    ["?sslmode=require", "encrypted"],
    ["?sslmode=disable", "plain"],
    ["?sslmode=verify-full", /self.signed certificate/],
    ["?sslmode=verify-ca&sslrootcert=CERT", "encrypted"],
    ["?sslmode=verify-full&sslrootcert=CERT", /altnames|does not match/i],
  ];
  for (const [suffix, expected] of ways) {
    test(`a URL with \`${suffix}\` is treated as in psql`, async () => {
      const url = await postgres.createDatabase();
      const testedUrl = `${url}${suffix.replace("CERT", path.join(directory, "cert.pem"))}`;
      if (expected instanceof RegExp) {
        await assert.rejects(PostgresStore.open({ databaseUrl: testedUrl }), expected);
        return;
      }
      await using _store = await PostgresStore.open({ databaseUrl: testedUrl });
      assert.deepEqual(await query(url, ENCRYPTED), [{ ssl: expected === "encrypted" }]);
    });
  }

  test("a server that is unavailable at first is probed for TLS once it is available", async () => {
    const url = await postgres.createDatabase();
    await postgres.stop();
    const reported = Promise.withResolvers<void>();
    const opening = PostgresStore.open({
      databaseUrl: url,
      waitToOpen: true,
      onError: () => reported.resolve(),
    });
    await reported.promise;
    await postgres.start();
    await using _store = await opening;
    assert.deepEqual(await query(url, ENCRYPTED), [{ ssl: true }]);
  });
});
