import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, lstatSync } from "node:fs";
import { mkdir, mkdtemp, readdir, readFile, realpath, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { suite, test } from "node:test";
import { catTable } from "../fanout/fanout-harness.ts";
import {
  answer,
  functionCall,
  type MockRequest,
  type MockResponses,
  report,
  says,
  startMockResponses,
  toolOutputs,
} from "../support/models/mock-responses.ts";
import { type CliEnd, type CliRun, startCli } from "../support/servers/run-cli.ts";
import { makePipe } from "../support/servers/serve.ts";
import { until } from "../support/system/until.ts";
import { changeOwner, commandAs, USERS, type User } from "../support/system/users.ts";
import { skipFor } from "./inside.ts";

const SECRET = "not to be overwritten\n";

/** A workspace that sandboxed commands can write, and a file of the same user that they cannot. */
class World implements AsyncDisposable {
  readonly root: string;
  readonly mock: MockResponses;
  /** The command of the agent; called with the id of the procwire process. */
  cmd: (pid: number) => string | Promise<string> = () => "true";
  readonly #user: User;
  #cli: CliRun | null = null;

  private constructor(user: User, root: string, mock: MockResponses) {
    this.#user = user;
    this.root = root;
    this.mock = mock;
  }

  static async prepare(user: User): Promise<World> {
    const root = await realpath(await mkdtemp(path.join(tmpdir(), "procwire-output-")));
    const mock = await startMockResponses((request) => world.#answer(request));
    const world = new World(user, root, mock);
    for (const directory of [world.workspace, world.outside]) await mkdir(directory);
    await writeFile(world.victim, SECRET);
    await writeFile(world.at("cats.csv"), catTable(1));
    return world;
  }

  get workspace(): string {
    return path.join(this.root, "workspace");
  }

  get outside(): string {
    return path.join(this.root, "outside");
  }

  get victim(): string {
    return path.join(this.outside, "victim");
  }

  at(name: string): string {
    return path.join(this.workspace, name);
  }

  run(args: readonly string[], options: { under?: readonly string[]; home?: string } = {}): Promise<CliEnd> {
    const { under = [], home } = options;
    changeOwner(this.#user, this.root);
    this.#cli = startCli(args, {
      cwd: this.workspace,
      under: [...commandAs(this.#user), ...under],
      env: {
        OPENAI_BASE_URL: this.mock.url,
        OPENAI_API_KEY: "dummy",
        ...(home === undefined ? {} : { PROCWIRE_HOME: home }),
      },
    });
    return this.#cli.ended;
  }

  exec(args: readonly string[], options: { under?: readonly string[]; home?: string } = {}): Promise<CliEnd> {
    return this.run(["exec", "--sandbox", "workspace-write", ...args, "go"], options);
  }

  fanout(args: readonly string[], options: { home?: string } = {}): Promise<CliEnd> {
    const sandbox = ["--tools", "exec", "--sandbox", "workspace-write"];
    return this.run(["fanout", "cats.csv", "--instruction", "about {name}", ...sandbox, ...args], options);
  }

  async jobId(): Promise<string> {
    const { stdout } = await this.run(["jobs", "list", "--json"]);
    return JSON.parse(stdout.split("\n")[0] ?? "").job_id;
  }

  /** Asserts that the victim is unchanged and alone in its directory. */
  async assertUntouched(): Promise<void> {
    assert.equal(await readFile(this.victim, "utf8"), SECRET);
    assert.deepEqual(await readdir(this.outside), ["victim"]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.mock.close();
    await rm(this.root, { recursive: true, force: true, maxRetries: 10 });
  }

  async #answer(request: MockRequest) {
    const [output] = toolOutputs(request.body);
    if (output === undefined) {
      const cmd = await this.cmd(this.#cli?.child.pid ?? 0);
      return answer(functionCall("c", "exec_command", { cmd, login: false }));
    }
    assert.match(output, /exited with code 0/, output);
    return request.item ? report(request) : says("the last message");
  }
}

for (const user of USERS)
  suite(`output files in a directory that a sandboxed command can write, as ${user.name}`, {
    skip: skipFor(user),
    concurrency: 2,
  }, () => {
    test("`exec -o` does not write through a link that a command has put in place", async () => {
      await using world = await World.prepare(user);
      await writeFile(world.at("last.txt"), "old");
      world.cmd = () => `ln -sf ${world.victim} last.txt`;
      const { code, stderr } = await world.exec(["-o", "last.txt"]);
      await world.assertUntouched();
      assert.equal(code, 1, stderr);
      assert.match(stderr, /write \S+\/last\.txt: a symbolic link has this name; remove the link/);
    });

    test("`exec -o` rejects a link before it calls the model", async () => {
      await using world = await World.prepare(user);
      await symlink(world.victim, world.at("last.txt"));
      const { code, stderr } = await world.exec(["-o", "last.txt"]);
      assert.equal(code, 1);
      assert.match(stderr, /a symbolic link has this name/);
      assert.equal(world.mock.requests.length, 0);
      await world.assertUntouched();
    });

    test("`exec -o` writes to the directory it opened, not to the replacement that a command made", async () => {
      await using world = await World.prepare(user);
      await mkdir(world.at("out"));
      world.cmd = () => `mv out moved && ln -s ${world.outside} out`;
      const { code, stderr } = await world.exec(["-o", "out/last.txt"]);
      await world.assertUntouched();
      assert.equal(await readFile(world.at("moved/last.txt"), "utf8"), "the last message");
      assert.equal(code, 1);
      assert.match(stderr, /the directory was moved or replaced meanwhile; the file is in \S+\/moved\n/);
    });

    test("the thread file is not written through a link that another process has put in its place", async () => {
      await using world = await World.prepare(user);
      const threads = world.at("state/threads");
      // Sandboxed commands cannot write this directory.
      world.cmd = async () => {
        for (const name of await readdir(threads)) {
          await rm(path.join(threads, name));
          await symlink(world.victim, path.join(threads, name));
        }
        return "! touch state/threads/new && ! mv state moved";
      };
      const { code, stderr } = await world.exec([], { home: world.at("state") });
      await world.assertUntouched();
      assert.equal(code, 0, stderr);
      assert.equal((await readdir(threads)).length, 1);
    });

    test("a command cannot change threads and jobs of the workspace", async () => {
      await using world = await World.prepare(user);
      await mkdir(world.at(".procwire/jobs"), { recursive: true });
      await writeFile(world.at(".procwire/jobs/kept"), "kept");
      world.cmd = () => "! rm .procwire/jobs/kept && ! touch .procwire/new && ! mv .procwire moved";
      const { code, stderr } = await world.exec([]);
      assert.equal(code, 0, stderr);
      assert.deepEqual(await readdir(world.at(".procwire/jobs")), ["kept"]);
    });

    test("the fan-out does not write through links at its output path or at an old temporary path", async () => {
      await using world = await World.prepare(user);
      world.cmd = (pid) => `ln -s ${world.victim} .out.csv.${pid}.tmp && ln -s ${world.victim} .out.csv.${pid + 1}.tmp`;
      const written = await world.fanout(["--output", "out.csv"]);
      await world.assertUntouched();
      assert.equal(written.code, 0, written.stderr);
      assert.ok(lstatSync(world.at("out.csv")).isFile());
      assert.match(await readFile(world.at("out.csv"), "utf8"), /completed/);

      world.cmd = () => `ln -sf ${world.victim} out.csv`;
      const refused = await world.fanout(["--output", "out.csv", "--fresh"]);
      await world.assertUntouched();
      assert.equal(refused.code, 1);
      assert.match(refused.stderr, /out\.csv: a symbolic link has this name; .*nothing is lost/);
    });

    test("the fan-out writes to the directory it opened, not to the replacement that a row made", async () => {
      await using world = await World.prepare(user);
      await mkdir(world.at("out"));
      world.cmd = () => `mv out moved && ln -s ${world.outside} out`;
      const { code, stderr } = await world.fanout(["--output", "out/out.csv"]);
      await world.assertUntouched();
      assert.match(await readFile(world.at("moved/out.csv"), "utf8"), /completed/);
      assert.equal(code, 1);
      assert.match(stderr, /the file is in \S+\/moved/);
    });

    test("job files are not written through links in the job's directory", async () => {
      await using world = await World.prepare(user);
      const jobs = world.at("state/jobs");
      const findJobDirectory = async () =>
        path.join(jobs, (await readdir(jobs)).find((name) => /^[0-9a-f-]{36}$/.test(name)) ?? "");
      let calls = 0;
      world.cmd = async (pid) => {
        const directory = await findJobDirectory();
        const pace = path.join(directory, "pace.json");
        // The second command runs after procwire wrote pace.json, with the links in place.
        if (calls++ > 0) await until("the next pace.json", () => existsSync(pace));
        else {
          await rm(pace, { force: true });
          const names = ["pace.json", "results.jsonl"].map((name) => `${name}.${pid}.new`);
          // Sandboxed commands cannot write this directory.
          for (const name of [...names, `.errors.csv.${pid}.tmp`])
            await symlink(world.victim, path.join(directory, name));
        }
        return "! touch state/jobs/new && ! mv state moved";
      };
      await writeFile(world.at("cats.csv"), catTable(2));
      const flags = ["--output", "out.csv", "--concurrency", "1"];
      const { code, stderr } = await world.fanout(flags, { home: world.at("state") });
      await world.assertUntouched();
      assert.equal(code, 0, stderr);
    });

    test("`jobs report` and `jobs export` reject a link as output and ignore links with guessed temporary names", async () => {
      await using world = await World.prepare(user);
      assert.equal((await world.fanout(["--output", "out.csv"])).code, 0);
      const id = await world.jobId();
      for (const name of ["link.html", "link.csv"]) await symlink(world.victim, world.at(name));
      await symlink(path.join(world.outside, "new"), world.at("dangling.csv"));
      for (const words of [
        ["report", id, "--output", "link.html"],
        ["export", id, "--output", "link.csv"],
        ["export", id, "--output", "dangling.csv"],
        ["export", id, "--errors", "--output", "dangling.csv"],
      ]) {
        const { code, stderr } = await world.run(["jobs", ...words]);
        assert.equal(code, 1, words.join(" "));
        assert.match(stderr, /a symbolic link has this name; remove the link or name its target/);
        await world.assertUntouched();
      }
      for (const [verb, output] of [
        ["report", "page.html"],
        ["export", "page.csv"],
      ] as const) {
        const plant = `ln -s ${world.victim} ${output}.$$.tmp; ln -s ${world.victim} .${output}.$$.tmp; exec "$@"`;
        const { code, stderr } = await world.run(["jobs", verb, id, "--output", output], {
          under: ["sh", "-c", plant, "sh"],
        });
        assert.equal(code, 0, stderr);
        assert.ok(lstatSync(world.at(output)).isFile());
        await world.assertUntouched();
      }
    });

    test("a recording and a table from stdin are not written through links", async () => {
      await using world = await World.prepare(user);
      await symlink(world.victim, world.at("demo.cast"));
      const recorded = await world.run(["record", "demo.cast", "--", "true"]);
      assert.equal(recorded.code, 1);
      assert.match(recorded.stderr, /demo\.cast: a symbolic link has this name/);
      await mkdir(world.at(".procwire/jobs"), { recursive: true });
      const plant = `ln -s ${world.victim} .procwire/jobs/stdin-$$.partial; exec "$@" <cats.csv`;
      const spooled = await world.run(["fanout", "-", "--instruction", "about {name}", "--dry-run"], {
        under: ["sh", "-c", plant, "sh"],
      });
      assert.equal(spooled.code, 0, spooled.stderr);
      await world.assertUntouched();
    });

    test("/dev/stdout and a named pipe take the last message", async () => {
      await using world = await World.prepare(user);
      const piped = await world.exec(["--json", "-o", "/dev/stdout"]);
      assert.match(piped.stdout, /^the last message$/m, piped.stderr);

      const redirected = await world.exec(["-o", "/dev/stdout"], {
        under: ["sh", "-c", 'echo before >log; exec "$@" >>log', "sh"],
      });
      assert.equal(redirected.code, 0, redirected.stderr);
      assert.match(await readFile(world.at("log"), "utf8"), /^before\n(.*\n)*the last message$/);

      makePipe(world.at("pipe"));
      const reader = spawn("cat", [world.at("pipe")], { stdio: ["ignore", "pipe", "inherit"] });
      let read = "";
      reader.stdout.setEncoding("utf8").on("data", (text: string) => {
        read += text;
      });
      // A command that replaces the pipe changes nothing, because procwire has the pipe open.
      world.cmd = () => `mv pipe moved && ln -s ${world.victim} pipe`;
      const { code, stderr } = await world.exec(["-o", "pipe"]);
      assert.equal(code, 0, stderr);
      await until("the message in the pipe", () => read === "the last message");
      await world.assertUntouched();
    });
  });
