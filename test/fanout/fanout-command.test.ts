import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { suite, test } from "node:test";
import {
  answer,
  functionCall,
  type MockHandler,
  type MockResponses,
  report,
  says,
  startMockResponses,
  toolOutputs,
} from "../support/models/mock-responses.ts";
import { type CliEnd, type CliRun, runCli, startCli } from "../support/servers/run-cli.ts";
import { runMain } from "../support/servers/run-main.ts";
import { until } from "../support/system/until.ts";
import { catTable } from "./fanout-harness.ts";

interface Setup {
  directory: string;
  mock: MockResponses;
  run(args: string[], stdin?: string): Promise<CliEnd>;
  start(args: string[]): CliRun;
  output(): Promise<string>;
}

async function withCli(handler: MockHandler, body: (setup: Setup) => Promise<void>): Promise<void> {
  const directory = await mkdtemp(path.join(tmpdir(), "procwire-cli-"));
  const mock = await startMockResponses(handler);
  const options = { cwd: directory, env: { OPENAI_BASE_URL: mock.url } };
  try {
    await writeFile(path.join(directory, "cats.csv"), catTable(6));
    await body({
      directory,
      mock,
      run: (args, stdin) => runCli(args, { ...options, ...(stdin === undefined ? {} : { stdin }) }),
      start: (args) => startCli(args, options),
      output: () => readFile(path.join(directory, "out.csv"), "utf8"),
    });
  } finally {
    await mock.close();
    await rm(directory, { recursive: true, force: true, maxRetries: 10 });
  }
}

const FANOUT = ["fanout", "cats.csv", "--instruction", "about {name}", "--output", "out.csv"];

// Side by side, because each is mostly waiting for programs to start.
suite("procwire fanout", { concurrency: 3 }, () => {
  test("writes an output table, and makes no call when the same command runs again", async () => {
    await withCli(
      (request) => report(request),
      async ({ directory, mock, run, output }) => {
        const first = await run([...FANOUT, "--concurrency", "3", "--model", "tiny"]);
        assert.equal(first.code, 0, first.stderr);
        assert.equal(first.stdout, "");
        assert.match(first.stderr, /^job [0-9a-f]{8}: 6 rows, model tiny\n/);
        assert.match(first.stderr, /completed: 6 of 6 rows completed; 12 tokens, \d+s\nresults: .*out.csv\n/);
        assert.equal((await output()).trimEnd().split("\n").length, 7);
        const [job] = (await readdir(path.join(directory, ".procwire/jobs"))).filter((name) => name !== "by-key");
        const files = await readdir(path.join(directory, ".procwire/jobs", job ?? ""));
        for (const file of ["ledger.sqlite", "results.jsonl", "errors.csv"]) assert.ok(files.includes(file), file);

        const second = await run([...FANOUT, "--concurrency", "3", "--model", "tiny"]);
        assert.equal(second.code, 0);
        assert.match(second.stderr, /continues: 6 of 6 rows are finished/);
        assert.equal(mock.requests.length, 6);
      },
    );
  });

  test("failed rows make the exit code 1 and are reported by class, with advice", async () => {
    await withCli(
      (request) => (request.item?.itemId === "cat_2" ? says("no") : report(request)),
      async ({ run }) => {
        const { code, stderr } = await run([...FANOUT, "--id-column", "name", "--max-attempts", "1"]);
        assert.equal(code, 1);
        assert.match(stderr, /cat_2 failed \(no_report\): worker finished without calling/);
        assert.match(stderr, /completed_with_errors: 5 of 6 rows completed, 1 failed \(1 no_report\)/);
        assert.match(stderr, /failures: .*errors\.csv\nto retry the failed rows: procwire jobs retry [0-9a-f]{8}/);
      },
    );
  });

  test("SIGINT and SIGTERM write the table, print how to resume and exit 130; the next run executes the rest", async () => {
    for (const signal of ["SIGINT", "SIGTERM"] as const) {
      let patient = false;
      await withCli(
        (request) =>
          patient || ["row-1", "row-2"].includes(request.item?.itemId ?? "") ? report(request) : { type: "hang" },
        async ({ mock, run, start, output }) => {
          const running = start([...FANOUT, "--concurrency", "2"]);
          await until("four requests", () => mock.requests.length >= 4, running.ended);
          running.child.kill(signal);
          const { code, stderr } = await running.ended;
          assert.equal(code, 130, stderr);
          assert.match(stderr, /paused: 2 of 6 rows completed/);
          assert.match(stderr, /to continue with the remaining 4 rows: run the same command again/);
          const table = await output();
          assert.equal(table.match(/,completed,1,/g)?.length, 2);
          assert.equal(table.match(/,pending,0,/g)?.length, 4);
          patient = true;
          const before = mock.requests.length;
          const again = await run([...FANOUT, "--concurrency", "2"]);
          assert.equal(again.code, 0, again.stderr);
          assert.equal(mock.requests.length - before, 4);
        },
      );
    }
  });

  test("stdin can be the table, in any format, and its job resumes like any other", async () => {
    await withCli(
      (request) => report(request),
      async ({ mock, run }) => {
        const args = ["fanout", "-", "--instruction", "about {name}", "--output", "out.csv"];
        assert.equal((await run(args, "name\nTom\n")).code, 0);
        assert.equal((await run(args, "name\nTom\n")).code, 0);
        assert.equal(mock.requests.length, 1);
        assert.equal((await run(args, '{"name":"Kit"}\n{"name":"Kat"}\n')).code, 0);
        assert.equal(mock.requests.length, 3);
        assert.equal((await run([...args, "--format", "tsv"], "name\tx\na\tb\n")).code, 0);
        assert.equal(mock.requests.length, 4);
      },
    );
  });

  test("schema, instruction and options come from files and flags, and the last of a repeated flag counts", async () => {
    await withCli(
      (request) => report(request, { n: 1 }),
      async ({ directory, mock, run }) => {
        await writeFile(path.join(directory, "schema.json"), '{"type":"object","required":["n"]}');
        await writeFile(path.join(directory, "task.txt"), "from a file about {name}\n");
        const { code, stderr } = await run([
          ...["fanout", "cats.csv", "--instruction-file", "task.txt", "--schema", "schema.json", "--output", "out.csv"],
          ...["--model", "first", "--model", "second", "--reasoning-effort", "low", "--explode"],
          ...["--rpm", "60000", "--tpm", "60000000", "--fail-fast", "50%", "--row-timeout", "60"],
        ]);
        assert.equal(code, 0, stderr);
        const body = mock.requests[0]?.body;
        assert.equal(body?.model, "second");
        assert.deepEqual(body?.reasoning, { effort: "low" });
        assert.match(JSON.stringify(body?.input), /from a file about cat_/);
        assert.match(String(body?.instructions), /"required"/);
        assert.match(await readFile(path.join(directory, "out.csv"), "utf8"), /,result\.n\n/);
      },
    );
  });

  test("--json writes the job and its rows as events on stdout and nothing on stderr", async () => {
    await withCli(
      (request) => (request.item?.itemId === "row-3" ? says("no") : report(request)),
      async ({ run }) => {
        const { code, stdout, stderr } = await run([...FANOUT, "--json", "--max-attempts", "2"]);
        assert.equal(code, 1);
        assert.equal(stderr, "");
        const events = stdout
          .trimEnd()
          .split("\n")
          .map((line) => JSON.parse(line));
        const count = (type: string) => events.filter((event) => event.type === type).length;
        assert.equal(events[0].type, "job.started");
        assert.equal(count("row.completed"), 5);
        assert.equal(count("row.failed"), 1);
        assert.equal(count("row.retrying"), 1);
        assert.ok(count("job.progress") >= 1);
        const end = events.at(-1);
        assert.equal(end.type, "job.completed");
        assert.equal(end.status, "completed_with_errors");
        assert.deepEqual(end.failures_by_class, { no_report: 1 });
        assert.equal(events.find((event) => event.type === "row.completed").result.item_id.slice(0, 4), "row-");
      },
    );
  });

  test("--dry-run shows the first prompts without a call, and --sample executes the first rows", async () => {
    await withCli(
      (request) => report(request),
      async ({ directory, mock, run }) => {
        const dry = await run(["fanout", "cats.csv", "--instruction", "about {name}", "--dry-run"]);
        assert.equal(dry.code, 0, dry.stderr);
        assert.match(dry.stdout, /--- row-1 ---\nYou are processing one item for a generic agent job\.\n/);
        assert.match(dry.stdout, /about cat_3/);
        assert.doesNotMatch(dry.stdout, /about cat_4/);
        assert.match(dry.stdout, /6 rows, .* about \d+ input tokens/);
        assert.equal(mock.requests.length, 0);
        assert.ok(!(await readdir(directory)).includes(".procwire"));
        const bad = await run(["fanout", "cats.csv", "--instruction", "about {nobody}", "--dry-run"]);
        assert.equal(bad.code, 1);
        assert.match(bad.stderr, /^procwire fanout: unknown placeholder \{nobody\}/);
        await writeFile(path.join(directory, "photos.csv"), 'name,photo\nTom,"data:image/png;base64,AAAA"\n');
        const photos = ["fanout", "photos.csv", "--instruction", "about {photo}", "--image-column", "photo"];
        const dryPhotos = await run([...photos, "--dry-run"]);
        assert.match(dryPhotos.stdout, /about \(attached\)\n[\s\S]*"photo": ?"\(attached\)"/, dryPhotos.stderr);
        assert.doesNotMatch(dryPhotos.stdout, /base64/);
        const looked = await run(photos);
        assert.equal(looked.code, 0, looked.stderr);
        const jobs = await readdir(path.join(directory, ".procwire/jobs"));
        const shown = await run(["jobs", "show", jobs.find((name) => name !== "by-key") ?? "", "--item", "row-1"]);
        assert.match(shown.stdout, /about \(attached\)\n/, shown.stderr);
        await rm(path.join(directory, ".procwire"), { recursive: true, maxRetries: 10 });
        mock.requests.length = 0;

        const sample = await run([...FANOUT, "--sample", "2"]);
        assert.equal(sample.code, 0, sample.stderr);
        assert.match(sample.stderr, /reason: the sample is finished; 4 rows are left/);
        assert.equal(mock.requests.length, 2);
      },
    );
  });

  test("agents with --tools exec run commands, spread over the servers of --connect", async () => {
    const handler: MockHandler = (request) => {
      const outputs = toolOutputs(request.body);
      return outputs.length === 0
        ? answer(functionCall("c", "exec_command", { cmd: "echo host=$WHERE" }))
        : report(request, { host: /host=(\w*)/.exec(outputs[0] ?? "")?.[1] });
    };
    await withCli(handler, async ({ directory, run, output }) => {
      const here = await run([...FANOUT, "--tools", "exec", "--fresh"]);
      assert.equal(here.code, 0, here.stderr);
      const servers = ["a", "b"].map((name) =>
        startCli(["serve", "--listen", "ws://127.0.0.1:0"], { cwd: directory, env: { WHERE: name } }),
      );
      try {
        const urls: string[] = [];
        for (const server of servers) {
          const listening = () => /(ws:\/\/\S+)/.exec(server.stdout)?.[1];
          await until("the server listens", () => listening() !== undefined, server.ended);
          const url = listening();
          assert.ok(url, server.stderr);
          urls.push(url);
        }
        // The third server does not exist, which must have no effect.
        const connect = [...urls, "ws://127.0.0.1:1"].flatMap((url) => ["--connect", url]);
        const far = await run([...FANOUT, ...connect, "--concurrency", "6", "--fresh"]);
        assert.equal(far.code, 0, far.stderr);
        const table = await output();
        assert.match(table, /""host"":""a""/);
        assert.match(table, /""host"":""b""/);
      } finally {
        for (const server of servers) server.child.kill("SIGTERM");
        await Promise.all(servers.map((server) => server.ended));
      }
    });
  });

  test("invalid options exit 2, invalid input and settings exit 1, each with one line and no model call", async () => {
    await withCli(
      (request) => report(request),
      async ({ directory, mock }) => {
        await writeFile(path.join(directory, "ragged.csv"), "name,b\n1\n");
        const base = ["cats.csv", "--instruction", "about {name}", "--output", "out.csv"];
        const cases: [string[], number, RegExp][] = [
          [[], 2, /no INPUT given/],
          [["cats.csv"], 2, /no --instruction given/],
          [["cats.csv", "dogs.csv"], 2, /give one INPUT; unexpected `dogs.csv`/],
          [[...base, "--concurrency", "0"], 2, /invalid --concurrency `0`; expected a whole number of at least 1/],
          [[...base, "--fail-fast", "most"], 2, /invalid --fail-fast `most`; expected a number of rows/],
          [[...base, "--tools", "hammer"], 2, /unknown --tools `hammer`; expected none, exec/],
          [[...base, "--tools", "none", "--connect", "ws://x"], 2, /--connect conflicts with --tools none/],
          [[...base, "--heartbeat", "5"], 2, /invalid --heartbeat `5`; expected a whole number of at least 10/],
          [[...base, "--budgte", "1"], 2, /unknown option `--budgte`; did you mean `--budget`\?/],
          [[...base, "--connect", "ftp://x"], 2, /unsupported --connect URL `ftp:\/\/x`/],
          [[...base, "--schema", "none.json"], 1, /the schema cannot be read: ENOENT/],
          [["none.csv", "--instruction", "x"], 1, /failed to read csv input none.csv: ENOENT/],
          [["ragged.csv", "--instruction", "x"], 1, /csv row 2 has 1 fields but header has 2/],
          [["cats.csv", "--instruction", "x", "--output", "cats.csv"], 1, /the output .*cats.csv is the input/],
          [["worker"], 2, /no database; give --database-url/],
        ];
        const outcomes = await runMain(
          cases.map(([args]) => ["fanout", ...args]),
          { cwd: directory, env: { OPENAI_BASE_URL: mock.url } },
        );
        for (const [index, [args, expected, message]] of cases.entries()) {
          const { code, stdout, stderr } = outcomes[index] ?? assert.fail("no outcome");
          assert.equal(code, expected, `${args.join(" ")}: ${stderr}`);
          assert.match(stderr, message);
          assert.equal(stderr.trimEnd().split("\n").length, 1, stderr);
          assert.equal(stdout, "");
        }
        assert.equal(mock.requests.length, 0);
      },
    );
  });

  test("a database can also be named by a file or the environment, and its password is never shown", async () => {
    await withCli(
      () => assert.fail("a model call was made"),
      async ({ directory }) => {
        const url = "postgres://u:pass-w0rd@127.0.0.1:1/x";
        await writeFile(path.join(directory, "url"), `${url}\n`);
        await writeFile(path.join(directory, "empty"), "\n");
        const refused = /^procwire \w+: the database cannot be used: connect ECONNREFUSED 127\.0\.0\.1:1$/;
        const gaveUp =
          /\nprocwire fanout: the database cannot be used: the database has been away .*ECONNREFUSED 127\.0\.0\.1:1$/;
        const worker = ["fanout", "worker", "--outage-timeout", "1"];
        const cases: [args: string[], env: Record<string, string>, code: number, RegExp][] = [
          [[...worker, "--database-url-file", "url"], {}, 1, gaveUp],
          [["jobs", "list", "--database-url-file", "url"], {}, 1, refused],
          [worker, { PROCWIRE_DATABASE_URL: url }, 1, gaveUp],
          [["jobs", "list"], { PROCWIRE_DATABASE_URL: url }, 1, refused],
          // DATABASE_URL may belong to another program, so only a worker uses it: it cannot mean anything else.
          [worker, { DATABASE_URL: url }, 1, gaveUp],
          [["jobs", "list"], { DATABASE_URL: url }, 0, /^(no jobs.*)?$/],
          [["jobs", "list", "--database-url-file", "empty"], {}, 1, /the database URL in empty is empty$/],
          [["jobs", "list", "--database-url-file", "gone"], {}, 1, /the database URL cannot be read: ENOENT/],
          [
            ["jobs", "list", "--database-url-file", "url", "--database-url", url],
            {},
            2,
            /--database-url conflicts with --database-url-file/,
          ],
        ];
        for (const [args, env, expected, message] of cases) {
          const { code, stderr, stdout } = await runCli(args, {
            cwd: directory,
            env: { OPENAI_API_KEY: "k", OPENAI_BASE_URL: "http://127.0.0.1:1", ...env },
          });
          assert.equal(code, expected, `${args.join(" ")}: ${stderr}`);
          assert.match(stderr.trim(), message);
          assert.ok(!`${stdout}${stderr}`.includes("pass-w0rd"));
        }
      },
    );
  });
});
