import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, mkdtempDisposable, readFile, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { suite, test } from "node:test";
import { createLocalHost } from "../../src/host/local-host.ts";
import { ExecServer } from "../../src/server/exec-server.ts";
import { listen } from "../../src/server/listen/listen.ts";
import { noSandbox } from "../sandbox/sandbox-fixture.ts";
import {
  answer,
  functionCall,
  inputItems,
  type MockHandler,
  type MockResponses,
  says,
  startMockResponses,
  toolOutputs,
} from "../support/models/mock-responses.ts";
import { type CliEnd, runCli, startCli } from "../support/servers/run-cli.ts";
import { runMain } from "../support/servers/run-main.ts";
import { ServeChild, scratchDirectory, serve } from "../support/servers/serve.ts";
import { until } from "../support/system/until.ts";

interface Setup {
  directory: string;
  mock: MockResponses;
  env: Record<string, string>;
  exec(args: string[], stdin?: string): Promise<CliEnd>;
}

async function withExec(handler: MockHandler, body: (setup: Setup) => Promise<void>): Promise<void> {
  const directory = await realpath(await mkdtemp(path.join(tmpdir(), "procwire-exec-")));
  const mock = await startMockResponses(handler);
  const env = { OPENAI_BASE_URL: mock.url, OPENAI_API_KEY: "sk-secret" };
  try {
    const exec = (args: string[], stdin?: string) =>
      runCli(["exec", ...bypassArgs(args), ...args], {
        cwd: directory,
        env,
        ...(stdin === undefined ? {} : { stdin }),
      });
    await body({ directory, mock, env, exec });
  } finally {
    await mock.close();
    await rm(directory, { recursive: true, force: true, maxRetries: 10 });
  }
}

const BYPASS = "--dangerously-bypass-approvals-and-sandbox";
/** Returns the flag that disables the sandbox unless `args` set one, so that the tests also run without bubblewrap. */
const bypassArgs = (args: string[]) => (args.includes("-s") || args.includes(BYPASS) ? [] : [BYPASS]);

/** A mock model that runs one command, then repeats its output. */
const runs =
  (cmd: string): MockHandler =>
  (request) => {
    const outputs = toolOutputs(request.body);
    return outputs.length === 0 ? answer(functionCall("c", "exec_command", { cmd })) : says(outputs.join("\n"));
  };

// Concurrent, because each test mostly waits for programs to start.
suite("procwire exec", { concurrency: 3 }, () => {
  test("runs the commands of the agent, and prints only the answer on stdout", async () => {
    await withExec(runs("echo $((6*7)); pwd"), async ({ directory, mock, exec }) => {
      const { code, stdout, stderr } = await exec(["-m", "tiny", "what is six times seven?"]);
      assert.equal(code, 0, stderr);
      assert.match(stdout, /Process exited with code 0/);
      assert.match(stdout, new RegExp(`Output:\n42\n${directory}\n`));
      assert.match(stderr, /model: tiny/);
      assert.match(stderr, /exec echo \$\(\(6\*7\)\); pwd/);
      assert.equal(mock.requests[0]?.body.model, "tiny");
      assert.equal(mock.requests[0]?.headers.authorization, "Bearer sk-secret");
    });
  });

  test("a command does not see the API key", async () => {
    await withExec(runs("env"), async ({ exec }) => {
      const { stdout } = await exec(["go"]);
      assert.match(stdout, /PATH=/);
      assert.doesNotMatch(stdout, /sk-secret/);
    });
  });

  test("commands run in --cwd and are reported as JSON items", async () => {
    await withExec(runs("pwd; exit 3"), async ({ exec }) => {
      const { code, stdout, stderr } = await exec(["--cwd", "/", "--json", "go"]);
      assert.equal(code, 0, stderr);
      const items = stdout
        .split("\n")
        .filter((line) => line.includes('"command_execution"'))
        .map((line) => JSON.parse(line));
      assert.deepEqual(
        items.map(({ type, item }) => [type, item.command, item.aggregated_output, item.exit_code, item.status]),
        [
          ["item.started", "/bin/bash -c 'pwd; exit 3'", "", null, "in_progress"],
          ["item.completed", "/bin/bash -c 'pwd; exit 3'", "/\n", 3, "failed"],
        ],
      );
    });
  });

  test("commands run on the server that --connect names", async () => {
    await withExec(runs("echo on=$WHERE"), async ({ directory, env, exec }) => {
      const server = startCli(["serve", "--listen", "ws://127.0.0.1:0"], {
        cwd: directory,
        env: { WHERE: "the-server" },
      });
      try {
        const listening = () => /(ws:\/\/\S+)/.exec(server.stdout)?.[1];
        await until("the server listens", () => listening() !== undefined, server.ended);
        const url = listening();
        assert.ok(url, server.stderr);
        assert.ok(env);
        const { code, stdout, stderr } = await exec(["--connect", url, "go"]);
        assert.equal(code, 0, stderr);
        assert.match(stdout, /on=the-server/);
      } finally {
        server.child.kill("SIGTERM");
        await server.ended;
      }
    });
  });

  test("after a server restart commands run in a new session, and the model receives one notice", async () => {
    const first = await serve();
    await using started = new AsyncDisposableStack();
    const turns: MockHandler = async ({ body }) => {
      const outputs = toolOutputs(body);
      if (outputs.length === 1) {
        await first.stop("SIGKILL");
        started.use(await new ServeChild(["--listen", first.url]).listening());
      }
      return outputs.length < 3
        ? answer(functionCall("c", "exec_command", { cmd: `echo turn ${outputs.length}`, login: false }))
        : says(outputs.map((output) => `<${output}>`).join("\n"));
    };
    await withExec(turns, async ({ exec }) => {
      const { code, stdout, stderr } = await exec(["--connect", first.url, "go"]);
      assert.equal(code, 0, stderr);
      assert.match(stdout, /turn 0\n>\n<Note: .* are lost.*turn 1\n>\n<Chunk ID: .*turn 2\n>/s);
    });
  });

  test("a missing server fails the run before the model is called", async () => {
    await withExec(
      () => says("no"),
      async ({ mock, exec }) => {
        const { code, stderr } = await exec(["--connect", "ws://127.0.0.1:1", "go"]);
        assert.equal(code, 1);
        assert.match(stderr, /error: no host can run commands: ws:\/\/127\.0\.0\.1:1: /);
        assert.equal(mock.requests.length, 0);
      },
    );
  });

  test("by default commands can write only in their working directory, and the run reports that", {
    skip: noSandbox,
  }, async () => {
    await withExec(runs("touch here && touch /etc/there"), async ({ directory, env }) => {
      const { code, stdout, stderr } = await runCli(["exec", "go"], { cwd: directory, env });
      assert.equal(code, 0, stderr);
      assert.match(stderr, /^sandbox: workspace-write$/m);
      assert.match(stdout, /\/etc\/there.*Read-only file system/);
      assert.ok(existsSync(path.join(directory, "here")));
      const readOnly = await runCli(["exec", "-s", "read-only", "go"], { cwd: directory, env });
      assert.match(readOnly.stdout, /'here'.*Read-only file system/);
    });
  });

  test("without bubblewrap the run is rejected, and the message names the flag that disables the sandbox", async () => {
    const host = createLocalHost();
    const server = new ExecServer({
      ...host,
      environment: {
        ...host.environment,
        describe: async () => ({ ...(await host.environment.describe()), sandboxes: [] }),
      },
    });
    const listening = await listen(server, { type: "websocket", host: "127.0.0.1", port: 0 });
    await using closing = new AsyncDisposableStack();
    closing.defer(() => server.close());
    closing.defer(() => listening.close());
    await withExec(runs("true"), async ({ directory, env, mock }) => {
      const args = ["exec", "--connect", listening.url, "go"];
      const { code, stderr } = await runCli(args, { cwd: directory, env });
      assert.equal(code, 1);
      assert.match(
        stderr,
        /sandbox `bubblewrap` is not available: .*; --dangerously-bypass-approvals-and-sandbox runs/,
      );
      assert.equal(mock.requests.length, 0);
      // Both flags that disable the sandbox allow the run.
      const none = await runCli([...args, "-s", "danger-full-access"], { cwd: directory, env });
      assert.equal(none.code, 0, none.stderr);
      assert.match(none.stderr, /^sandbox: none$/m);
    });
  });

  test("a command that runs again without the sandbox is one JSON item, completed once", {
    skip: noSandbox,
  }, async () => {
    // Not below /tmp, which is writable in the sandbox too.
    await using other = await mkdtempDisposable("/var/tmp/procwire-retried-");
    await withExec(runs(`echo tried; touch ${other.path}/x && echo written`), async ({ directory, exec }) => {
      const rules = path.join(directory, "rules.toml");
      await writeFile(rules, 'default = "allow"\nunsandboxed = "allow"\n');
      const { code, stdout, stderr } = await exec(["-s", "workspace-write", "--rules", rules, "--json", "go"]);
      assert.equal(code, 0, stderr);
      const items = stdout
        .split("\n")
        .filter((line) => line.includes('"command_execution"'))
        .map((line) => JSON.parse(line))
        .map(({ type, item }) => [type, item.id, item.aggregated_output, item.exit_code, item.status]);
      assert.deepEqual(items, [
        ["item.started", "item_0", "", null, "in_progress"],
        ["item.completed", "item_0", "tried\nwritten\n", 0, "completed"],
      ]);
    });
  });

  test("commands can write to the directory of --add-dir", { skip: noSandbox }, async () => {
    using other = scratchDirectory();
    await withExec(runs(`touch ${other.path}/there`), async ({ exec }) => {
      const { code, stderr } = await exec(["-s", "workspace-write", "--add-dir", other.path, "go"]);
      assert.equal(code, 0, stderr);
      assert.ok(existsSync(path.join(other.path, "there")));
    });
  });

  test("--color always colors only the human-readable text; a pipe and --color never have no colors", async () => {
    const command = "printf '\\033[31mred'; exit 3";
    await withExec(runs(command), async ({ exec }) => {
      const [always, auto, never] = await Promise.all(
        [["--color", "always"], [], ["--color", "never"]].map((flags) => exec([...flags, "go"])),
      );
      assert.match(always?.stderr ?? "", /\x1b\[35;3mexec\x1b\[0m \x1b\[1mprintf .*\x1b\[31mexited 3\x1b\[0m/s);
      // Color codes of the command are escaped, not interpreted.
      const own = /red/.exec(always?.stderr.split("exited 3")[1] ?? "");
      assert.ok(own);
      assert.doesNotMatch(always?.stderr ?? "", /\x1b\[31mred/);
      for (const plain of [auto?.stderr, never?.stderr, always?.stdout.replaceAll("\x1b[31mred", "")])
        assert.ok(plain && !plain.includes("\x1b["), plain);
      assert.equal((await exec(["--color", "sometimes", "go"])).code, 2);
    });
  });

  test("the model receives an output schema, images and piped input", async () => {
    const seen: unknown[] = [];
    const model: MockHandler = ({ body }) => {
      seen.push(body.text, inputItems(body)[0]?.content);
      return says("{}");
    };
    await withExec(model, async ({ directory, exec }) => {
      await writeFile(path.join(directory, "schema.json"), '{"type":"object"}');
      await writeFile(path.join(directory, "dot.png"), "png");
      const args = ["--output-schema", "schema.json", "-i", "dot.png", "look"];
      assert.equal((await exec(args, "more")).code, 0);
      assert.deepEqual(seen, [
        {
          format: { type: "json_schema", name: "output_schema", strict: true, schema: { type: "object" } },
        },
        [
          { type: "input_text", text: "look\n\n<stdin>\nmore\n</stdin>" },
          { type: "input_image", image_url: "data:image/png;base64,cG5n" },
        ],
      ]);
    });
  });

  test("a thread is resumed by its id or as the last one, with its whole history", async () => {
    const sentItems: unknown[][] = [];
    const model: MockHandler = ({ body }) => {
      sentItems.push(inputItems(body).map(({ type, content, output }) => content ?? output ?? type));
      return toolOutputs(body).length === 0
        ? answer(functionCall("c", "exec_command", { cmd: "echo kept", login: false }))
        : says("noted");
    };
    await withExec(model, async ({ directory, exec }) => {
      // An older thread, from a run that ended during a call.
      const threads = path.join(directory, ".procwire", "threads");
      await mkdir(threads, { recursive: true });
      const cut = { type: "function_call", call_id: "cut", name: "exec_command", arguments: "{}" };
      await writeFile(path.join(threads, "older.jsonl"), `${JSON.stringify(cut)}\n{"type":"mess`);
      const first = await exec(["--json", "one"]);
      const { thread_id } = JSON.parse(first.stdout.split("\n")[0] ?? "");
      const second = await exec(["--json", "resume", thread_id, "two"]);
      assert.equal(JSON.parse(second.stdout.split("\n")[0] ?? "").thread_id, thread_id);
      assert.equal((await exec(["resume", "--last", "--ephemeral", "three"])).code, 0);
      const texts = JSON.stringify(sentItems.at(-1));
      assert.match(texts, /"one".*kept\\n.*noted.*"two".*noted.*"three"/);
      assert.equal((await exec(["resume", "older", "four"])).code, 0);
      // The API rejects a call without an output.
      assert.deepEqual(sentItems.at(-1)?.slice(0, 2), ["function_call", "aborted"]);
      const missing = await exec(["resume", "../nope", "five"]);
      assert.equal(missing.code, 2);
      assert.match(missing.stderr, /unknown thread `\.\.\/nope`/);
    });
  });

  test("--max-turns and --budget end a run without a final answer", async () => {
    await withExec(
      () => answer(functionCall("c", "exec_command", { cmd: "true", login: false })),
      async ({ exec }) => {
        const [turns, tokens] = await Promise.all([exec(["--max-turns", "2", "go"]), exec(["--budget", "5", "go"])]);
        assert.deepEqual([turns.code, tokens.code], [1, 1]);
        assert.match(turns.stderr, /the turn did not end within 2 model calls; --max-turns N raises the limit/);
        assert.match(tokens.stderr, /the budget of 5 tokens is used up \(6\)/);
      },
    );
  });

  test("a turn is limited to 250 model responses by default, and --max-turns raises the limit", async () => {
    const calls = new Map<string, number>();
    await withExec(
      ({ body }) => {
        const prompt = JSON.stringify(body).includes("raised") ? "raised" : "default";
        const count = (calls.get(prompt) ?? 0) + 1;
        calls.set(prompt, count);
        return count > 250 ? says("done") : answer(functionCall(`c${count}`, "teleport", {}));
      },
      async ({ exec }) => {
        const [limited, raised] = await Promise.all([exec(["go"]), exec(["--max-turns", "251", "raised"])]);
        assert.deepEqual([limited.code, calls.get("default")], [1, 250]);
        assert.match(limited.stderr, /the turn did not end within 250 model calls; --max-turns N raises the limit/);
        assert.deepEqual([raised.code, raised.stdout, calls.get("raised")], [0, "done\n", 251]);
      },
    );
  });

  test("each unknown tool that the model calls is reported once", async () => {
    await withExec(
      () => answer(functionCall("c", "teleport", {}), functionCall("d", "fly", {})),
      async ({ exec }) => {
        const { code, stderr } = await exec(["--max-turns", "3", "go"]);
        assert.equal(code, 1);
        assert.deepEqual(stderr.match(/^warning: the model called an unknown tool: .*$/gm), [
          "warning: the model called an unknown tool: teleport",
          "warning: the model called an unknown tool: fly",
        ]);
      },
    );
  });

  test("a path that is not a directory and an empty prompt are rejected", async () => {
    await withExec(runs("true"), async ({ exec, mock }) => {
      const [cwd, prompt] = await Promise.all([exec(["-C", "/nope", "go"]), exec([" "])]);
      assert.deepEqual([cwd.code, prompt.code], [2, 2]);
      assert.match(cwd.stderr, /-C `\/nope` is not a directory/);
      assert.match(prompt.stderr, /no PROMPT given/);
      assert.equal(mock.requests.length, 0);
    });
  });

  test("the prompt is read from stdin, and the last message is written to a file", async () => {
    await withExec(
      () => says("done"),
      async ({ directory, mock, exec }) => {
        const { code } = await exec(["-o", "last.txt", "-"], "from a pipe\n");
        assert.equal(code, 0);
        assert.match(JSON.stringify(mock.requests[0]?.body.input), /from a pipe/);
        assert.equal(await readFile(path.join(directory, "last.txt"), "utf8"), "done");
      },
    );
  });

  test("a failed turn exits with code 1 and the reason", async () => {
    await withExec(
      () => ({ type: "status", status: 400, body: { error: { message: "no such model" } } }),
      async ({ exec }) => {
        const { code, stdout, stderr } = await exec(["go"]);
        assert.equal(code, 1);
        assert.equal(stdout, "");
        assert.match(stderr, /error: the API answered 400: no such model/);
      },
    );
  });

  test("a 429 is retried after its delay and the run succeeds", async () => {
    await withExec(
      (request) =>
        request.index === 0 ? { type: "status", status: 429, headers: { "retry-after": "1" } } : says("in the end"),
      async ({ exec }) => {
        const { code, stdout } = await exec(["go"]);
        assert.equal(code, 0);
        assert.equal(stdout, "in the end\n");
      },
    );
  });

  test("SIGINT exits with code 130, SIGTERM with code 1, and the processes of the agent end", async () => {
    for (const [signal, expected] of [
      ["SIGINT", 130],
      ["SIGTERM", 1],
    ] as const) {
      await withExec(runs("echo $$ > pid; exec sleep 300"), async ({ directory, env }) => {
        const run = startCli(["exec", BYPASS, "go"], { cwd: directory, env });
        const pidFile = path.join(directory, "pid");
        const readPid = async () => Number(await readFile(pidFile, "utf8").catch(() => ""));
        await until("the command runs", async () => (await readPid()) > 0, run.ended);
        const pid = await readPid();
        run.child.kill(signal);
        const { code, stderr } = await run.ended;
        assert.equal(code, expected, stderr);
        assert.match(stderr, /turn interrupted/);
        assert.throws(() => process.kill(pid, 0), /ESRCH/);
      });
    }
  });

  test("invalid options exit with code 2 and invalid settings with code 1, each with one line; --help prints to stdout", async () => {
    const cases: [string[], number, RegExp][] = [
      [["--modle", "x", "go"], 2, /^procwire exec: unknown option `--modle`; did you mean `--model`\?/],
      [["one", "two"], 2, /^procwire exec: give one PROMPT, in quotes/],
      [["--sandbox", "paper", "go"], 2, /^procwire exec: unknown --sandbox `paper`; expected none, read-only/],
      [["--connect", "http://x", "go"], 2, /^procwire exec: unsupported --connect URL `http:\/\/x`; expected `ws/],
      [["-c", "agents.max_threads=0", "go"], 1, /^procwire exec: invalid value `0` for agents.max_threads/],
      [["-c", "nonsense", "go"], 1, /^procwire exec: invalid -c override `nonsense`/],
      [["-c", "openai_base_url=ftp://x", "go"], 1, /^procwire exec: invalid API base URL `ftp:\/\/x`/],
      [["go"], 1, /^procwire exec: OPENAI_API_KEY is not set/],
    ];
    const outcomes = await runMain([...cases.map(([args]) => ["exec", ...args]), ["exec", "--help"]], {
      cwd: tmpdir(),
    });
    for (const [index, [, expected, message]] of cases.entries()) {
      const { code, stdout, stderr } = outcomes[index] ?? assert.fail("no outcome");
      assert.equal(code, expected, stderr);
      assert.match(stderr, message);
      assert.equal(stderr.trimEnd().split("\n").length, 1);
      assert.equal(stdout, "");
    }
    assert.match(outcomes.at(-1)?.stdout ?? "", /^Usage: procwire exec \[OPTIONS\] PROMPT/);
  });
});
