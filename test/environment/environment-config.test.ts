import assert from "node:assert/strict";
import { hostname } from "node:os";
import { type TestContext, test } from "node:test";
import { parse } from "smol-toml";
import { readEnvironmentConfig } from "../../src/environment/environment-config.ts";
import { Scratch } from "../files/scratch.ts";

function host(t: TestContext) {
  const scratch = new Scratch(t);
  const places = { env: { HOME: scratch.path("home") }, systemDirectory: scratch.path("etc") };
  const read = (configPaths: string[][], requirementsPaths: string[][] = [], cwd = "project/a/b") =>
    readEnvironmentConfig({ cwd: scratch.uri(cwd), configPaths, requirementsPaths }, places);
  return {
    scratch,
    read,
    /** The content of each layer with the first word of its source. */
    async layers(configPaths: string[][], cwd?: string) {
      const { config } = await read(configPaths, [], cwd);
      return config.layers.map(({ source, toml }) => [source.split(" ")[0], JSON.parse(JSON.stringify(parse(toml)))]);
    },
    trust: (extra = "") =>
      scratch.file(
        "home/.codex/config.toml",
        `${extra}\n[projects."${scratch.path("project")}"]\ntrust_level = "trusted"\n`,
      ),
  };
}

test("readEnvironmentConfig returns no layers for a host without configuration", async (t) => {
  const { scratch, read } = host(t);
  assert.deepEqual(await read([["model"]]), {
    userHomeDir: scratch.uri("home"),
    codexHomeDir: scratch.uri("home/.codex"),
    hostname: hostname(),
    config: { layers: [], cloudInsertionIndex: 0 },
    requirements: { layers: [], cloudInsertionIndex: 0 },
  });
});

test("readEnvironmentConfig returns system, user and project layers in ascending priority, each with its directory", async (t) => {
  const { scratch, read, trust } = host(t);
  scratch.file("etc/config.toml", 'model = "system"\n');
  trust('model = "user"');
  scratch.directory("project/.git");
  scratch.file("project/.codex/config.toml", 'model = "top"\n');
  scratch.file("project/a/b/.codex/config.toml", 'model = "deep"\n');
  const { config } = await read([["model"]]);
  assert.deepEqual(
    config.layers.map(({ source, baseDir, toml }) => [source, baseDir, toml]),
    [
      [`system (${scratch.path("etc/config.toml")})`, scratch.uri("etc"), 'model = "system"\n'],
      [`user (${scratch.path("home/.codex/config.toml")})`, scratch.uri("home/.codex"), 'model = "user"\n'],
      [`project (${scratch.path("project/.codex/config.toml")})`, scratch.uri("project/.codex"), 'model = "top"\n'],
      [
        `project (${scratch.path("project/a/b/.codex/config.toml")})`,
        scratch.uri("project/a/b/.codex"),
        'model = "deep"\n',
      ],
    ],
  );
  assert.equal(config.cloudInsertionIndex, 1);
});

test("readEnvironmentConfig ignores the configuration of an untrusted project", async (t) => {
  const { scratch, layers } = host(t);
  scratch.directory("project/.git");
  scratch.file("project/.codex/config.toml", 'model = "top"\n');
  scratch.file("home/.codex/config.toml", 'model = "user"\n');
  assert.deepEqual(await layers([["model"]]), [["user", { model: "user" }]]);
});

test("readEnvironmentConfig returns only the values of the key paths, even if the paths overlap", async (t) => {
  const { scratch, layers } = host(t);
  scratch.file(
    "home/.codex/config.toml",
    'model = "x"\nsecret = "no"\n[servers.a]\ncommand = "y"\nargs = ["1"]\n[servers.b]\nurl = "z"\n[[arr]]\nk = 1\n[[arr]]\nk = 2\n',
  );
  const user = async (...paths: string[][]) => (await layers(paths))[0]?.[1];
  assert.deepEqual(await user(["servers", "a"]), { servers: { a: { command: "y", args: ["1"] } } });
  assert.deepEqual(await user(["servers", "a", "command"], ["servers", "b"]), {
    servers: { a: { command: "y" }, b: { url: "z" } },
  });
  const whole = { servers: { a: { command: "y", args: ["1"] }, b: { url: "z" } } };
  assert.deepEqual(await user(["servers"], ["servers", "a", "command"]), whole);
  assert.deepEqual(await user(["servers", "a", "command"], ["servers"]), whole);
  assert.deepEqual(await user(["arr"]), { arr: [{ k: 1 }, { k: 2 }] });
  assert.deepEqual(await user(["servers", "nope"]), { servers: {} });
  assert.equal(await user(["nope", "x"]), undefined);
  assert.equal(await user(["model", "deeper"]), undefined);
  assert.equal(await user(["__proto__"]), undefined);
});

test("readEnvironmentConfig reads requirements from the system layer only", async (t) => {
  const { scratch, read } = host(t);
  scratch.file("etc/requirements.toml", 'allowed = ["read-only"]\nother = 1\n');
  const { requirements, config } = await read([], [["allowed"]]);
  assert.deepEqual(config.layers, []);
  assert.deepEqual(requirements, {
    layers: [
      {
        source: scratch.path("etc/requirements.toml"),
        baseDir: scratch.uri("etc"),
        toml: 'allowed = [ "read-only" ]\n',
      },
    ],
    cloudInsertionIndex: 1,
  });
});

test("readEnvironmentConfig requires at least one path and rejects empty paths", async (t) => {
  const { read } = host(t);
  await assert.rejects(read([]), {
    code: -32602,
    message: "at least one config or requirements path is required",
  });
  await assert.rejects(read([[]]), {
    code: -32602,
    message: "TOML paths must contain at least one key segment",
  });
});

test("readEnvironmentConfig names a file with invalid TOML in the error", async (t) => {
  const { scratch, read } = host(t);
  const path = scratch.file("home/.codex/config.toml", "model = [broken");
  await assert.rejects(read([["model"]]), (error: Error & { code?: number }) => {
    assert.equal(error.code, -32603);
    return error.message.startsWith(`failed to load executor-local config: ${path}: `);
  });
});

test("readEnvironmentConfig finds no project for a missing directory", async (t) => {
  const { layers, trust } = host(t);
  trust('model = "user"');
  assert.deepEqual(await layers([["model"]], "nowhere/at/all"), [["user", { model: "user" }]]);
});
