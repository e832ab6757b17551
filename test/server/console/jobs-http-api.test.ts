/** The jobs API below `/api/jobs`, over a real gateway with ledgers of the real store. */
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { systemClock } from "../../../src/async/clock.ts";
import { PACKAGE_PRICES } from "../../../src/fanout/cost/price-table.ts";
import { SqliteStore } from "../../../src/fanout/ledger/sqlite/sqlite-store.ts";
import { JobsQueryService } from "../../../src/fanout/view/jobs-service.ts";
import { createLocalHost } from "../../../src/host/local-host.ts";
import { jobList, resultsPart, rowDetails, rowPage } from "../../../src/protocol/console/console-job-schemas.ts";
import { AuditLog } from "../../../src/server/audit/audit-log.ts";
import { auditJobs } from "../../../src/server/audit/audited-console.ts";
import { parseAuthFlags } from "../../../src/server/auth/auth-config.ts";
import { LOCAL_PRINCIPAL } from "../../../src/server/auth/principal.ts";
import type { WebSocketAuth } from "../../../src/server/auth/websocket-auth.ts";
import { handleJobsRequest, type JobsQueryHandler } from "../../../src/server/console/jobs-http-api.ts";
import { ExecServer } from "../../../src/server/exec-server.ts";
import { listen } from "../../../src/server/listen/listen.ts";
import { scratchDirectory } from "../../support/servers/serve.ts";

const JOB = "11111111-2222-4333-8444-555555555555";
const ODD_ID = "odd /?#id%";
const scratch = scratchDirectory();
after(() => scratch[Symbol.dispose]());

const store = new SqliteStore(join(scratch.path, "jobs"));
const views = new JobsQueryService({ store, prices: PACKAGE_PRICES, jobsHome: join(scratch.path, "jobs") });
const jobs: JobsQueryHandler = (question) => views.handle(question);

before(async () => {
  writeFileSync(join(scratch.path, "index.html"), "<!doctype html>");
  const rows = async function* () {
    for (let rowIndex = 0; rowIndex < 1_000; rowIndex++) {
      const itemId = rowIndex === 7 ? ODD_ID : `row-${rowIndex}`;
      yield { itemId, rowIndex, sourceId: null, row: { name: `<b>${rowIndex}</b>` } };
    }
  };
  await store.create(
    {
      id: JOB,
      key: "k",
      task: {
        instruction: "see {name}",
        schema: null,
        model: "m",
        reasoningEffort: null,
        tools: "none",
        idColumn: null,
      },
      settings: { maxAttempts: 3, rowTimeoutMs: 1, rowLimit: null },
      inputPath: "a.csv",
      outputPath: "b.csv",
      createdAtMs: 1,
    },
    rows(),
    () => ({ headers: ["name"], isReading: false }),
  );
});

async function open(known: JobsQueryHandler | undefined, auth: WebSocketAuth = { type: "none" }, audit?: AuditLog) {
  const server = new ExecServer({ ...createLocalHost(), audit });
  const listening = await listen(
    server,
    { type: "websocket", host: "127.0.0.1", port: 0 },
    { auth, web: { directory: scratch.path, jobs: known } },
  );
  const base = listening.url.replace(/^ws/, "http");
  const signIn = async (token: string) => {
    const answer = await fetch(`${base}/api/sign-in`, { method: "POST", body: JSON.stringify({ token }) });
    assert.equal(answer.status, 200);
    return ((await answer.json()) as { secret: string }).secret;
  };
  return {
    signIn,
    /** Signs in with the login URL and returns the secret of the console session. */
    signInHere: () => signIn(new URL(listening.loginUrl() ?? "").hash.replace("#token=", "")),
    ask: (path: string, secret: string, request: RequestInit = {}) =>
      fetch(`${base}${path}`, { ...request, headers: { ...request.headers, authorization: `Bearer ${secret}` } }),
    async [Symbol.asyncDispose]() {
      const closed = listening.close();
      await server.close();
      listening.destroyPending();
      await closed;
    },
  };
}

test("the jobs API serves a browser that opened the login URL, with the headers of the console", async () => {
  await using gateway = await open(jobs);
  const secret = await gateway.signInHere();
  const list = await gateway.ask("/api/jobs", secret);
  assert.equal(list.status, 200);
  assert.match(list.headers.get("content-security-policy") ?? "", /^default-src 'none'; script-src 'self';/);
  assert.equal(list.headers.get("content-type"), "application/json");
  assert.equal(list.headers.get("x-content-type-options"), "nosniff");
  assert.equal(list.headers.get("cache-control"), "no-store");
  assert.equal(jobList.decode(await list.json()).jobs[0]?.jobId, JOB);
  const rowsOf = async (query: string) =>
    rowPage.decode(await (await gateway.ask(`/api/jobs/${JOB}/rows?${query}`, secret)).json());
  const page = await rowsOf("offset=990&limit=5&text=9");
  assert.deepEqual([page.total, page.offset, page.rows.length], [271, 990, 0]);
  assert.deepEqual((await rowsOf("offset=998")).rows[1]?.cells, ["<b>999</b>"]);
  const resultsOf = async (query: string) =>
    resultsPart.decode(await (await gateway.ask(`/api/jobs/${JOB}/results?${query}`, secret)).json());
  const results = await resultsOf("format=csv&offset=0&limit=2");
  assert.deepEqual([results.total, results.rows], [1_000, 2]);
  assert.match(results.text, /^name,job_id,item_id,.*\n<b>0<\/b>,.*\n<b>1<\/b>,.*\n$/);
  assert.match((await resultsOf("format=csv&offset=2&limit=1")).text, /^<b>2<\/b>,.*\n$/);
  assert.equal(JSON.parse((await resultsOf("format=jsonl&offset=999")).text).item_id, "row-999");
  const row = await gateway.ask(`/api/jobs/${JOB}/rows/${encodeURIComponent(ODD_ID)}`, secret);
  assert.match(rowDetails.decode(await row.json()).prompt, /see <b>7<\/b>/);
});

test("the jobs API rejects an invalid request with the valid values", async () => {
  await using gateway = await open(jobs);
  const secret = await gateway.signInHere();
  const refusal = async (path: string, request?: RequestInit) => {
    const answer = await gateway.ask(path, secret, request);
    return [answer.status, (await answer.text()).trim()];
  };
  const post = (body: string): RequestInit => ({ method: "POST", body });
  assert.deepEqual(await refusal(`/api/jobs/${JOB}/rows?limit=501`), [
    400,
    "`limit` must be a whole number from 0 to 500, got `501`",
  ]);
  assert.deepEqual(await refusal(`/api/jobs/${JOB}/rows?offset=-1`), [
    400,
    `\`offset\` must be a whole number from 0 to ${Number.MAX_SAFE_INTEGER}, got \`-1\``,
  ]);
  assert.equal((await refusal(`/api/jobs/${JOB}/rows?status=done`))[0], 400);
  assert.equal((await refusal(`/api/jobs/${JOB}/rows?text=${"x".repeat(1_001)}`))[0], 400);
  assert.equal((await refusal(`/api/jobs/${JOB}/rows/%zz`))[0], 400);
  assert.equal((await refusal(`/api/jobs/${JOB}/nothing`))[0], 404);
  assert.equal((await refusal("/api/jobs/no-such-job"))[0], 404);
  assert.equal((await refusal("/api/jobs/..%2f..%2fetc"))[0], 404);
  assert.equal((await refusal(`/api/jobs/${JOB}/retry`))[0], 405);
  assert.equal((await refusal(`/api/jobs/${JOB}`, post("{}")))[0], 405);
  assert.equal((await refusal(`/api/jobs/${JOB}/retry`, post("nothing")))[0], 400);
  assert.equal((await refusal(`/api/jobs/${JOB}/retry`, post('{"errorClasses":["x"]}')))[0], 400);
  assert.equal((await refusal(`/api/jobs/${JOB}/retry`, post(`{"itemIds":["${"x".repeat(20_000)}"]}`)))[0], 400);
  assert.deepEqual(await refusal(`/api/jobs/${JOB}/retry`, post("{}")), [409, "no row has failed"]);
  // The server keeps serving.
  assert.equal((await refusal("/api/jobs"))[0], 200);
});

test("the jobs API responds with 500 if the jobs cannot be read", async () => {
  await using gateway = await open(async () => {
    throw new Error("disk I/O error");
  });
  const answer = await gateway.ask("/api/jobs", await gateway.signInHere());
  assert.deepEqual([answer.status, (await answer.text()).trim()], [500, "disk I/O error"]);
});

test("the jobs API records the outcome of each retry in the audit log", async () => {
  const path = join(scratch.path, "audit.jsonl");
  const log = new AuditLog(path, { clock: systemClock });
  await using gateway = await open(
    async ({ type }) => (type === "retry" ? { type: "found", json: "{}" } : { type: "missing", reason: "none" }),
    { type: "none" },
    log,
  );
  const secret = await gateway.signInHere();
  const retry = (body: string, as = secret) => gateway.ask(`/api/jobs/${JOB}/retry`, as, { method: "POST", body });
  assert.equal((await retry("{}")).status, 200);
  assert.equal((await retry("nothing")).status, 400);
  assert.equal((await retry("{}", "")).status, 401);
  assert.equal((await gateway.ask("/api/jobs", secret)).status, 404);
  log.close();
  const lines = readFileSync(path, "utf8").trimEnd().split("\n");
  assert.deepEqual(
    lines
      .map((line): Record<string, unknown> => JSON.parse(line))
      .filter(({ event }) => event === "console/retryJob")
      .map(({ principal, outcome, jobId, reason }) => [principal, outcome, jobId, typeof reason]),
    [
      ["local", "allowed", JOB, "undefined"],
      ["local", "refused", JOB, "string"],
      [undefined, "refused", JOB, "string"],
    ],
  );
});

test("the jobs API records a retry in the audit log for each spelling of its path", async () => {
  const path = join(scratch.path, "audit-spellings.jsonl");
  const log = new AuditLog(path, { clock: systemClock });
  let retries = 0;
  const audited = jobsRequestAudit(log, async ({ type }) => {
    if (type === "retry") retries++;
    return { type: "found", json: "{}" };
  });
  const targets = ["/api/./jobs/J/retry", "/x/../api/jobs/J/retry", "//host/api/jobs/J/retry", "/api\\jobs/J/retry"];
  targets.push("http://host/api/jobs/J/retry", "/api/jobs/J/retry#x");
  for (const target of targets) await audited("POST", target);
  for (const target of targets) assert.equal((await audited("GET", target))?.status, 405, target);
  for (const method of ["GET", "POST"]) await audited(method, "/api/jobs/J/re%74ry");
  log.close();
  const lines = readFileSync(path, "utf8").split("\n");
  assert.equal(lines.filter((line) => line.includes('"console/retryJob"')).length, retries);
  assert.equal(retries, targets.length);
});

/** Returns a function that handles a request of the server's user as the console does. */
function jobsRequestAudit(log: AuditLog, handler: JobsQueryHandler) {
  return (method: string, target: string) => {
    const request = { method, target, body: async () => "{}" };
    return auditJobs(log, LOCAL_PRINCIPAL, request, () => handleJobsRequest(handler, LOCAL_PRINCIPAL, request));
  };
}

test("the jobs API rejects requests without a console session, of other users and of other origins", async () => {
  const token = "0123456789abcdef0123456789abcdef";
  const operator = "fedcba9876543210fedcba9876543210";
  const file = (name: string, text: string) => {
    const path = join(scratch.path, name);
    writeFileSync(path, text);
    return path;
  };
  const { auth } = parseAuthFlags({
    wsAuth: "capability-token",
    wsTokenFile: file("token", token),
    operatorTokenFile: file("operator", operator),
  });
  await using gateway = await open(jobs, auth);
  const status = async (secret: string, request?: RequestInit) =>
    (await gateway.ask("/api/jobs", secret, request)).status;
  assert.equal(await status(""), 401);
  assert.equal(await status("", { headers: { authorization: `Bearer ${operator}` } }), 401);
  const user = await gateway.signIn(token);
  assert.equal(await status(user), 403);
  assert.equal((await gateway.ask(`/api/jobs/${JOB}/retry`, user, { method: "POST", body: "{}" })).status, 403);
  assert.equal(await status(await gateway.signIn(operator)), 200);
  const mine = await gateway.signInHere();
  assert.equal(await status(mine), 200);
  assert.equal(await status(mine, { headers: { origin: "http://127.0.0.1:1" } }), 403);
});

test("a server without jobs names the flag that enables them", async () => {
  await using gateway = await open(undefined);
  const answer = await gateway.ask("/api/jobs", await gateway.signInHere());
  assert.equal(answer.status, 404);
  assert.match(await answer.text(), /`--jobs DIR`/);
});
