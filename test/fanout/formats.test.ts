import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, suite, test } from "node:test";
import { report, startMockResponses } from "../support/models/mock-responses.ts";
import { runCli } from "../support/servers/run-cli.ts";
import { runMain } from "../support/servers/run-main.ts";

const directory = await mkdtemp(path.join(tmpdir(), "procwire-formats-"));
const mock = await startMockResponses((request) => report(request, { text: "a\tb", n: 1 }));
const options = { cwd: directory, env: { OPENAI_BASE_URL: mock.url } };
after(async () => {
  await mock.close();
  await rm(directory, { recursive: true, force: true, maxRetries: 10 });
});

const fanout = (input: string, ...args: string[]) =>
  runCli(["fanout", input, "--instruction", "about {name}", ...args], options);

suite("table formats", () => {
  test("results have the format of the output's extension", async () => {
    await writeFile(
      path.join(directory, "cats.json"),
      '[\n {"name": "Tom", "age": 12345678901234567890},\n {"name": "Kit"}\n]\n',
    );
    const lines = await fanout("cats.json", "--output", "out.jsonl");
    assert.equal(lines.code, 0, lines.stderr);
    const text = await readFile(path.join(directory, "out.jsonl"), "utf8");
    const objects = text
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line));
    assert.equal(objects.length, 2);
    assert.match(text, /"age":12345678901234567890,/);
    assert.deepEqual(objects[1].result, { text: "a\tb", n: 1 });
    assert.equal(objects[1].status, "completed");
    assert.equal(objects[1].item_id, "row-2");

    const tabs = await fanout("cats.json", "--output", "out.tsv", "--explode");
    assert.equal(tabs.code, 0, tabs.stderr);
    const [header, first] = (await readFile(path.join(directory, "out.tsv"), "utf8")).split("\n");
    assert.match(header ?? "", /^name\tage\tjob_id\t.*\tresult\.text\tresult\.n$/);
    assert.match(first ?? "", /^Tom\t12345678901234567890\t.*\t"a\tb"\t1$/);
    assert.equal(mock.requests.length, 2, "the same job, written twice");
  });

  test("--output - writes only the results to stdout", async () => {
    const { code, stdout, stderr } = await fanout("cats.json", "--output", "-");
    assert.equal(code, 0, stderr);
    const rows = stdout.trimEnd().split("\n");
    assert.equal(rows.length, 3);
    assert.match(rows[0] ?? "", /^name,age,job_id,/);
    assert.ok(!(await readdir(directory)).includes("-"));
    const id = /^job (\w+)/.exec(stderr)?.[1] ?? "";
    const exported = await runCli(["jobs", "export", id, "--output", "-"], options);
    assert.equal(exported.stdout, stdout);
  });

  test("--keep-going skips and reports invalid rows", async () => {
    await writeFile(path.join(directory, "ragged.csv"), Buffer.from("name;b\nJosé;1\nbad\n", "latin1"));
    const { code, stderr } = await fanout(
      ...(["ragged.csv", "--keep-going", "--delimiter", ";"] as const),
      ...["--encoding", "latin1", "--output", "ragged-out.csv"],
    );
    assert.equal(code, 0, stderr);
    assert.match(
      stderr,
      /^warning: 1 rows cannot be read and are left out; the first: csv row 3 has 1 fields but header has 2$/m,
    );
    assert.match(await readFile(path.join(directory, "ragged-out.csv"), "utf8"), /^José,1,/m);
  });

  test("invalid flags are rejected with the expected value", async () => {
    const base = ["fanout", "cats.json", "--instruction", "x"];
    const cases: [string[], RegExp][] = [
      [["--delimiter", "::"], /invalid --delimiter `::`; expected one character/],
      [["--encoding", "klingon"], /unknown --encoding `klingon`; expected a name such as utf-8/],
      [["--json", "--output", "-"], /--output - conflicts with --json/],
      [["--temperature", "hot"], /invalid --temperature `hot`; expected a number from 0 to 2/],
      [["--extra-body", "[1]"], /invalid --extra-body; expected a JSON object/],
      [["--header", "nonsense"], /invalid --header; expected `Name: value`/],
      [["--votes", "0"], /invalid --votes `0`; expected a whole number of at least 1/],
      [["--api", "grpc"], /unknown --api `grpc`; expected responses, chat, anthropic/],
    ];
    const outcomes = await runMain(
      cases.map(([args]) => [...base, ...args]),
      options,
    );
    for (const [index, [args, message]] of cases.entries()) {
      assert.equal(outcomes[index]?.code, 2, args.join(" "));
      assert.match(outcomes[index]?.stderr ?? "", message);
    }
  });
});
