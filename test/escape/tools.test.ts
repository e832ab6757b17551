import assert from "node:assert/strict";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import type { ExecBackend } from "../../src/exec/exec-process.ts";
import { createLocalBackend } from "../../src/host/create-local-backend.ts";
import { availableSandboxes } from "../../src/sandbox/sandbox-probe.ts";
import type { ApprovalPolicy } from "../../src/tools/policy/approval.ts";
import { parseRules, rulesPolicy } from "../../src/tools/policy/rules-file.ts";
import { createUnifiedExec, type UnifiedExecOptions } from "../../src/tools/unified-exec.ts";
import { noSandbox, scratch } from "../sandbox/sandbox-fixture.ts";
import { until } from "../support/system/until.ts";
import { call, fact, textOf } from "../tools/calls.ts";
import { at, attemptProgram, type Fixture, intent, READ_ROOT, testEscape } from "./inside.ts";

/** Runs commands like a model, in the sandbox that procwire's tools choose, on a server or locally. */
interface Model extends AsyncDisposable {
  run(
    cmd: string,
    more?: Record<string, unknown>,
  ): Promise<{ output: string; text: string; exitCode: unknown; denied: unknown }>;
}

function model(backend: ExecBackend, cwd: string, more: Partial<UnifiedExecOptions> = {}): Model {
  const unified = createUnifiedExec({
    ...{ backend, cwd, hostSandboxes: ["bubblewrap"] },
    sandbox: { type: "bubblewrap", writableRoots: [cwd], network: false },
    ...more,
  });
  return {
    async run(cmd, args = {}) {
      const output = await call(unified, "exec_command", { cmd, login: false, ...args });
      const text = output.ok ? textOf(output) : output.text;
      return {
        output: text,
        text: output.text,
        exitCode: fact(output, "exit_code"),
        denied: fact(output, "sandbox_denied"),
      };
    },
    [Symbol.asyncDispose]: () => unified.close(),
  };
}

/** Defines tests of one escape attempt: on a server that runs as each user, and locally. */
function testToolsEscape(
  title: string,
  body: (backend: ExecBackend, makeDirectory: (name: string) => string) => Promise<void>,
): void {
  testEscape(`${title}, on a server`, async (fixture: Fixture) => {
    await using client = await NodeExecServerClient.connectWebSocket({ url: fixture.server.url });
    assert.deepEqual((await client.info()).sandboxes, availableSandboxes());
    await body(client.backend, (name) => fixture.makeDirectory(name));
  });
  for (const forceFallback of [false, true]) {
    test(`${title}, on this machine ${forceFallback ? "without" : "with"} the addon`, {
      skip: noSandbox,
    }, async () => {
      using directory = scratch();
      await using backend = createLocalBackend({ forceFallback });
      await body(backend, (name) => {
        const path = join(directory.path, name);
        mkdirSync(path, { recursive: true });
        return path;
      });
    });
  }
}

testToolsEscape("a model's command makes no hook, and leaves no mount point", async (backend, makeDirectory) => {
  const workspace = makeDirectory("workspace");
  await using commands = model(backend, workspace);
  const made = await commands.run(
    "mkdir -p .git/hooks || mkdir .codex || ln -s /etc .agents; ls -A; echo x >file; false",
  );
  assert.equal(made.denied, true, made.text);
  await until("the mount points to be gone", () => readdirSync(workspace).join() === "file");
});

testToolsEscape(
  "a model's command replaces no protected name below a writable parent",
  async (backend, makeDirectory) => {
    const outer = makeDirectory("outer");
    const workspace = makeDirectory("outer/middle/workspace");
    const names = [".git", ".codex", ".agents", ".procwire"];
    for (const name of names) makeDirectory(`outer/middle/workspace/${name}`);
    const { ino } = statSync(workspace);
    const sandbox = { type: "bubblewrap", writableRoots: [outer, workspace], network: false } as const;
    await using commands = model(backend, workspace, { sandbox });
    const made = await commands.run(
      `cd ${outer}; mv -T middle/workspace middle/w && cp -r middle/w middle/workspace; mv middle m && cp -r m middle
      for name in ${names.join(" ")}; do echo x >middle/workspace/$name/planted; done; echo over`,
    );
    assert.match(made.output, /^over$/m);
    assert.equal(statSync(workspace).ino, ino);
    for (const name of names) assert.deepEqual(readdirSync(join(workspace, name)), [], name);
    await until("the mount points to be gone", () => readdirSync(outer).join() === "middle");
  },
);

testToolsEscape(
  "a model's command cannot write procwire's jobs, while procwire still can",
  async (backend, makeDirectory) => {
    const workspace = makeDirectory("workspace");
    await using commands = model(backend, workspace);
    const plant = "mkdir -p .procwire/jobs; echo x >.procwire/jobs/planted; rmdir .procwire; mv .procwire p; true";
    await commands.run(plant);
    await until("the mount point to be gone", () => readdirSync(workspace).length === 0);
    // procwire writes a job while a command has the empty mount point.
    const running = commands.run(`touch started; until [ -e .procwire/jobs/job ]; do sleep 0.05; done; ${plant}`);
    await until("the command", () => readdirSync(workspace).includes("started"));
    const jobs = join(workspace, ".procwire", "jobs");
    mkdirSync(jobs, { recursive: true });
    writeFileSync(join(jobs, "job"), "first");
    await running;
    await commands.run(`echo x >.procwire/jobs/job; ${plant}`);
    writeFileSync(join(jobs, "job"), "second");
    assert.deepEqual(readdirSync(jobs), ["job"]);
    assert.equal(readFileSync(join(jobs, "job"), "utf8"), "second");
  },
);

testToolsEscape(
  "a model's command cannot write a data directory that PROCWIRE_HOME or PROCWIRE_JOBS names",
  async (backend, makeDirectory) => {
    // A workspace per variable, because the session keeps the directories that it has seen.
    for (const variable of ["PROCWIRE_HOME", "PROCWIRE_JOBS"]) {
      const workspace = makeDirectory(variable);
      const state = join(workspace, "deep", "state");
      await using commands = model(backend, workspace, { env: { [variable]: state } });
      const plant = `mkdir -p ${state}/jobs; echo x >${state}/jobs/planted; mv deep d; rm -rf deep; true`;
      await commands.run(plant);
      await until("the mount point to be gone", () => readdirSync(workspace).length === 0);
      for (const name of ["deep", "deep/state", "deep/state/jobs"]) makeDirectory(`${variable}/${name}`);
      const { text } = await commands.run(`${plant}; mv deep/state deep/s; echo fine >deep/file`);
      assert.deepEqual(readdirSync(join(workspace, "deep")).toSorted(), ["file", "state"], text);
      assert.deepEqual(readdirSync(join(state, "jobs")), []);
    }
  },
);

testToolsEscape(
  "a model's command cannot write threads and jobs where the data directory is a writable root",
  async (backend, makeDirectory) => {
    const workspace = makeDirectory("workspace");
    for (const name of ["jobs", "threads"]) makeDirectory(`workspace/${name}`);
    await using commands = model(backend, workspace, { env: { PROCWIRE_HOME: workspace } });
    await commands.run("echo x >jobs/planted; echo x >threads/planted; mv jobs j; mv threads t; echo fine >file");
    assert.deepEqual(readdirSync(workspace).toSorted(), ["file", "jobs", "threads"]);
    for (const name of ["jobs", "threads"]) assert.deepEqual(readdirSync(join(workspace, name)), [], name);
  },
);

testToolsEscape(
  "a model's command cannot write the .procwire directory of a home below a writable root",
  async (backend, makeDirectory) => {
    const around = makeDirectory("around");
    const home = makeDirectory("around/home");
    await using commands = model(backend, around, { env: { HOME: home } });
    await commands.run("mkdir -p home/.procwire/threads; echo x >home/.procwire/threads/planted; true");
    await until("the mount points to be gone", () => readdirSync(home).length === 0);
  },
);

testEscape(
  "the data directories of the server's own environment and working directory are read-only",
  async (fixture) => {
    const sandbox = intent([READ_ROOT, at(fixture.directory, "write")], { protectStartUpFiles: true });
    const { output } = await fixture.script(
      sandbox,
      "cd $1; for f in state ledgers .procwire; do mkdir -p $f/jobs; echo x >$f/planted; mv $f other; done; ls -A other state ledgers .procwire".replaceAll(
        "$1",
        fixture.directory,
      ),
    );
    assert.doesNotMatch(output, /planted$/m);
    await until("the mount points to be gone", () => readdirSync(fixture.directory).join() === "");
  },
  // Another home, so that only the working directory protects `.procwire`.
  { env: { HOME: "/nonexistent", PROCWIRE_HOME: "state", PROCWIRE_JOBS: "ledgers" } },
);

testToolsEscape("a model's command reaches no unix socket", async (backend, makeDirectory) => {
  const workspace = makeDirectory("workspace");
  const path = join(workspace, "agent.sock");
  const server = createServer((socket) => socket.end("secret")).listen(path);
  try {
    await until("listening", () => server.listening);
    chmodSync(path, 0o777);
    await using commands = model(backend, workspace);
    assert.equal((await commands.run(`${attemptProgram()} connect ${path}`)).output, "EPERM\n");
  } finally {
    server.close();
  }
});

testToolsEscape(
  "a program that a model's command has planted in the PATH does not run outside the sandbox",
  async (backend, makeDirectory) => {
    const workspace = makeDirectory("workspace");
    const marker = join(makeDirectory("outside"), "ran");
    await using commands = model(backend, workspace, { env: { PATH: `${workspace}:/usr/bin:/bin` } });
    const plant = ["env", "bwrap", "readlink", "sh"].map(
      (name) => `printf '#!/bin/sh\\n/usr/bin/touch ${marker}\\n' >${name}; /bin/chmod +x ${name}`,
    );
    assert.equal((await commands.run(plant.join("; "))).exitCode, 0);
    await commands.run("true");
    assert.ok(!existsSync(marker));
  },
);

testToolsEscape("a root that a model's command has swapped for a link stays closed", async (backend, makeDirectory) => {
  const outer = makeDirectory("outer");
  const inner = makeDirectory("outer/inner");
  const victim = makeDirectory("victim");
  const roots = { type: "bubblewrap", writableRoots: [outer, inner], network: false } as const;
  await using commands = model(backend, outer, { sandbox: { ...roots, protectedNames: [] } });
  assert.equal((await commands.run(`mv ${inner} ${outer}/old && ln -s ${victim} ${inner}`)).exitCode, 0);
  const second = await commands.run(`echo x >${victim}/written`);
  assert.match(second.text, /sandbox intent cannot be enforced .*inner` resolves to .*victim/);
  assert.deepEqual(readdirSync(victim), []);
});

testToolsEscape(
  "a working directory below a private /tmp is visible but not writable",
  async (backend, makeDirectory) => {
    const directory = makeDirectory("tmp-like");
    writeFileSync(join(directory, "file"), "content");
    await using commands = model(backend, directory, {
      sandbox: { type: "bubblewrap", writableRoots: [], network: false },
    });
    assert.equal((await commands.run("cat file; pwd")).output, `content${directory}\n`);
    assert.equal((await commands.run("echo x >file")).denied, true);
  },
);

/** Start-up files in the home directory, and compiled files that zsh prefers. */
const START_UP_FILES = [
  ...[".profile", ".bash_profile", ".bash_login", ".bashrc", ".bash_aliases", ".bash_logout", ".inputrc"],
  ...[".kshrc", ".zshenv", ".zprofile", ".zshrc", ".zlogin", ".zlogout", ".zshenv.zwc", ".zlogin.zwc"],
];

testToolsEscape(
  "a model's command in the home directory cannot create a start-up file, and leaves no placeholder",
  async (backend, makeDirectory) => {
    const home = makeDirectory("home");
    await using commands = model(backend, home, { env: { HOME: home } });
    for (const name of START_UP_FILES) {
      const made = await commands.run(`echo x >${name} || rm -f ${name} || mv ${name} y || ln -sf /etc/passwd ${name}`);
      assert.equal(made.denied, true, `${name}: ${made.text}`);
    }
    assert.equal((await commands.run("mkdir -p .config/fish && echo x >.config/fish/config.fish")).denied, true);
    assert.match((await commands.run("mv .config c")).output, /Device or resource busy/);
    assert.equal((await commands.run("echo x >file")).exitCode, 0);
    await until("the placeholders to be gone", () => readdirSync(home).join() === "file");
  },
);

testToolsEscape(
  "a model's command in the home directory can change neither a start-up file nor its directory",
  async (backend, makeDirectory) => {
    const around = makeDirectory("around");
    const home = makeDirectory("around/home");
    for (const directory of [".config", "zsh"]) makeDirectory(`around/home/${directory}`);
    for (const name of [".profile", "zsh/.zshenv"]) {
      writeFileSync(join(home, name), "# own\n");
      chmodSync(join(home, name), 0o666);
    }
    const env = { HOME: home, ZDOTDIR: join(home, "zsh"), BASH_ENV: join(home, "bash-env") };
    await using commands = model(backend, around, { env });
    for (const cmd of [
      ...["echo x >>home/.profile", "echo x >home/zsh/.zshenv", "echo x >home/zsh/.zshrc"],
      ...["echo x >home/bash-env", "mkdir home/.config/fish/conf.d"],
    ])
      assert.equal((await commands.run(cmd)).denied, true, cmd);
    for (const directory of ["home", "home/zsh", "home/.config"])
      assert.match((await commands.run(`mv ${directory} moved`)).output, /Device or resource busy/);
    assert.equal((await commands.run("echo x >home/.config/other && rm home/.config/other")).exitCode, 0);
    assert.equal(readFileSync(join(home, ".profile"), "utf8"), "# own\n");
    await until("the placeholders to be gone", () => readdirSync(join(home, "zsh")).join() === ".zshenv");
    assert.deepEqual(readdirSync(home).toSorted(), [".config", ".profile", "zsh"]);
    assert.deepEqual(readdirSync(join(home, ".config")), []);
  },
);

testToolsEscape(
  "placeholders of missing start-up files change nothing for a login shell",
  async (backend, makeDirectory) => {
    const home = makeDirectory("home");
    for (const name of [".profile", ".zprofile"]) writeFileSync(join(home, name), "export FROM_PROFILE=yes\n");
    await using commands = model(backend, home, { env: { HOME: home } });
    for (const shell of ["bash", "sh", "zsh"]) {
      const shown = await commands.run("echo $FROM_PROFILE", { login: true, shell });
      assert.equal(shown.output, "yes\n", shown.text);
    }
  },
);

testToolsEscape("a start-up file that is a link in a writable home is refused", async (backend, makeDirectory) => {
  const home = makeDirectory("home");
  symlinkSync("/etc/profile", join(home, ".bashrc"));
  await using commands = model(backend, home, { env: { HOME: home } });
  assert.match((await commands.run("true")).text, /\.bashrc` is a symbolic link, which a sandbox cannot/);
  assert.deepEqual(readdirSync(home), [".bashrc"]);
});

/** Lets every command leave the sandbox, or none. */
const approvalPolicy = (type: "allow" | "refuse"): ApprovalPolicy => ({
  review: ({ kind }) => ({ type: kind === "command" ? "allow" : "ask" }),
  ask: async () => (type === "allow" ? { type } : { type, reason: "the test refuses" }),
});

const ESCALATED = { sandbox_permissions: "require_escalated", login: undefined };

testToolsEscape("an escalation that is refused runs nothing outside", async (backend, makeDirectory) => {
  const home = makeDirectory("home");
  const outside = makeDirectory("outside");
  const profile = `touch ${outside}/$(basename $HOME)\n`;
  for (const name of [".bash_profile", ".zshenv"]) writeFileSync(join(home, name), profile);
  await using commands = model(backend, makeDirectory("workspace"), {
    approval: approvalPolicy("refuse"),
    env: { HOME: home },
  });
  for (const shell of ["bash", "sh", "zsh"]) {
    const refused = await commands.run("true", { ...ESCALATED, shell });
    assert.match(refused.text, /^exec_command refused: the test refuses/);
  }
  assert.deepEqual(readdirSync(outside), []);
});

testToolsEscape(
  "an escalation reads no start-up file in a home that sandboxed commands can write",
  async (backend, makeDirectory) => {
    const home = makeDirectory("home");
    const outside = makeDirectory("outside");
    chmodSync(outside, 0o777);
    const planted = `touch ${outside}/ran\n`;
    await using commands = model(backend, home, {
      approval: approvalPolicy("allow"),
      env: { HOME: home, BASH_ENV: join(home, "env") },
    });
    for (const name of [".bash_profile", ".zshenv", "env"]) writeFileSync(join(home, name), planted);
    for (const shell of ["bash", "sh", "zsh"]) {
      for (const login of [undefined, true, false]) {
        const ran = await commands.run("echo outside", { ...ESCALATED, login, shell });
        assert.equal(ran.output, "outside\n", ran.text);
      }
    }
    assert.deepEqual(readdirSync(outside), []);
  },
);

testToolsEscape(
  "an escalation gets the login environment of a home that sandboxed commands cannot write",
  async (backend, makeDirectory) => {
    const home = makeDirectory("home");
    writeFileSync(join(home, ".bash_profile"), "export FROM_PROFILE=yes\n");
    await using commands = model(backend, makeDirectory("workspace"), {
      approval: approvalPolicy("allow"),
      env: { HOME: home },
    });
    assert.equal((await commands.run("echo $FROM_PROFILE", ESCALATED)).output, "yes\n");
  },
);

/** Allows `git status`, also outside the sandbox, and refuses every question. */
const gitRules = () =>
  rulesPolicy(
    parseRules({
      default: "allow",
      rule: [{ prefix: ["git", "status"], decision: "allow", unsandboxed: true }],
    }),
  );

testToolsEscape(
  "a rule does not let git run a program that a sandboxed command has planted in a repository",
  async (backend, makeDirectory) => {
    const workspace = makeDirectory("workspace");
    const outside = makeDirectory("outside");
    chmodSync(outside, 0o777);
    const elsewhere = makeDirectory("elsewhere");
    await using commands = model(backend, workspace, {
      approval: gitRules(),
      env: { HOME: makeDirectory("home") },
    });
    const hook = `printf '#!/bin/sh\\ntouch ${outside}/ran\\n' >hook && chmod +x hook`;
    const plant = `mkdir -p nested/sub && cd nested && git init -q . && ${hook} && git config core.fsmonitor "$PWD/hook"`;
    await using planting = model(backend, workspace);
    assert.equal((await planting.run(plant)).exitCode, 0);
    // A repository outside of the workspace whose settings lie in the workspace.
    writeFileSync(join(elsewhere, ".git"), `gitdir: ${workspace}/nested/.git\n`);
    for (const workdir of [".", "nested", "nested/sub", elsewhere]) {
      const refused = await commands.run("git status", { ...ESCALATED, login: false, workdir });
      assert.match(refused.text, /^exec_command refused: the rules require an approval/, workdir);
    }
    assert.deepEqual(readdirSync(outside), []);
  },
);

testToolsEscape(
  "a rule lets a command leave the sandbox where sandboxed commands cannot write",
  async (backend, makeDirectory) => {
    const elsewhere = makeDirectory("elsewhere");
    await using commands = model(backend, makeDirectory("workspace"), {
      approval: gitRules(),
      env: { HOME: makeDirectory("home") },
    });
    const ran = await commands.run("git status", { ...ESCALATED, workdir: elsewhere });
    assert.match(ran.output, /not a git repository|No commits yet|nothing to commit/, ran.text);
  },
);
