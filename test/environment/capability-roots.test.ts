import assert from "node:assert/strict";
import { test } from "node:test";
import { discoverCapabilities } from "../../src/environment/capabilities.ts";
import { discoverCapabilityRoots } from "../../src/environment/capability-roots.ts";
import { Scratch } from "../files/scratch.ts";

const skill = (name: string) => `---\nname: ${name}\ndescription: about ${name}\n---\nbody`;

async function discover(scratch: Scratch, name: string) {
  const { roots } = await discoverCapabilityRoots({ roots: [{ id: "r", path: scratch.uri(name) }] });
  const [root] = roots;
  assert.ok(root);
  return root;
}

test("capability discovery finds a plugin with its configuration and every skill of its tree, in order", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("p/.codex-plugin/plugin.json", '{"name":"p"}');
  scratch.file("p/.mcp.json", '{"mcpServers":{}}');
  scratch.file("p/.app.json", '{"apps":{}}');
  scratch.file("p/skills/s1/SKILL.md", skill("s1"));
  scratch.file("p/skills/s1/agents/openai.yaml", "interface: {}\n");
  scratch.file("p/skills/n/s2/SKILL.md", skill("s2"));
  scratch.file("p/skills/sub/.claude-plugin/plugin.json", '{"name":"sub"}');
  scratch.file("p/SKILL.md", skill("top"));
  scratch.file("p/README.md", "no skill");
  const root = await discover(scratch, "p");
  const at = (name: string, contents: string) => ({ path: scratch.uri(`p/${name}`), contents });
  assert.deepEqual(root, {
    id: "r",
    path: scratch.uri("p"),
    plugin: {
      manifest: at(".codex-plugin/plugin.json", '{"name":"p"}'),
      mcpConfig: at(".mcp.json", '{"mcpServers":{}}'),
      appsConfig: at(".app.json", '{"apps":{}}'),
    },
    skills: [
      { instructions: at("SKILL.md", skill("top")), metadata: null },
      { instructions: at("skills/n/s2/SKILL.md", skill("s2")), metadata: null },
      {
        instructions: at("skills/s1/SKILL.md", skill("s1")),
        metadata: at("skills/s1/agents/openai.yaml", "interface: {}\n"),
      },
    ],
    namespaceManifests: [
      at(".codex-plugin/plugin.json", '{"name":"p"}'),
      at("skills/sub/.claude-plugin/plugin.json", '{"name":"sub"}'),
    ],
    warnings: [],
    error: null,
  });
});

test("capability discovery reads the configuration files that a manifest names, but none outside of the plugin", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("p/.codex-plugin/plugin.json", '{"mcpServers":"./m.json","apps":"../secret.json"}');
  scratch.file("p/m.json", "{}");
  scratch.file("secret.json", "{}");
  const { plugin } = await discover(scratch, "p");
  assert.equal(plugin?.mcpConfig?.path, scratch.uri("p/m.json"));
  assert.equal(plugin?.appsConfig, null);
});

test("capability discovery returns a broken manifest unchanged", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("p/.claude-plugin/plugin.json", "{broken");
  const { plugin } = await discover(scratch, "p");
  assert.equal(plugin?.manifest.contents, "{broken");
});

test("capability discovery reports a root that is missing or not a directory in its own result", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("file");
  const { roots } = await discoverCapabilityRoots({
    roots: ["nope", "file"].map((name) => ({ id: name, path: scratch.uri(name) })),
  });
  assert.deepEqual(
    roots.map(({ error }) => error),
    [
      `failed to inspect capability root ${scratch.uri("nope")}: No such file or directory (os error 2)`,
      `capability root ${scratch.uri("file")} is not a directory`,
    ],
  );
  assert.deepEqual(await discoverCapabilityRoots({ roots: [] }), { roots: [] });
});

test("capability discovery omits a file that is not UTF-8 and warns", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("p/a/SKILL.md", Buffer.from([0xff, 0xfe]));
  scratch.file("p/b/SKILL.md", skill("b"));
  const { skills, warnings } = await discover(scratch, "p");
  assert.equal(skills.length, 1);
  assert.deepEqual(warnings, [`capability file ${scratch.uri("p/a/SKILL.md")} is not UTF-8`]);
});

test("capability discovery terminates in a tree with a cycle of links", async (t) => {
  const scratch = new Scratch(t);
  scratch.file("p/a/SKILL.md", skill("a"));
  scratch.link("p/a/loop", "..");
  assert.equal((await discover(scratch, "p")).skills.length, 1);
});

test("capability discovery finds the user's skills by their front matter and warns about unread files", async (t) => {
  const scratch = new Scratch(t);
  const env = { HOME: scratch.path("home") };
  assert.deepEqual(await discoverCapabilities(env), { plugins: [], skills: [], warnings: [] });
  scratch.file("home/.codex/skills/one/SKILL.md", skill("one"));
  scratch.file(
    "home/.agents/skills/two/SKILL.md",
    `---\nname: "two: 2"\ndescription: 'it''s two'\nmetadata:\n  short-description: short\n---\n`,
  );
  scratch.file("home/.agents/skills/none/SKILL.md", "no front matter");
  scratch.file("home/.agents/skills/unnamed/SKILL.md", "---\ndescription: d\n---\n");
  const { skills, warnings } = await discoverCapabilities(env);
  assert.equal(skills.pop()?.name, "unnamed");
  assert.deepEqual(skills, [
    {
      name: "one",
      description: "about one",
      shortDescription: null,
      path: scratch.uri("home/.codex/skills/one/SKILL.md"),
      discoveryRoot: { id: "codex-home-skills", path: scratch.uri("home/.codex/skills") },
      dependencies: null,
      policy: null,
    },
    {
      name: "two: 2",
      description: "it's two",
      shortDescription: "short",
      path: scratch.uri("home/.agents/skills/two/SKILL.md"),
      discoveryRoot: { id: "user-agent-skills", path: scratch.uri("home/.agents/skills") },
      dependencies: null,
      policy: null,
    },
  ]);
  assert.equal(warnings.length, 1);
  scratch.file("home/.codex/skills/one/agents/openai.yaml", "policy: {}\n");
  scratch.file("home/.codex/plugins/cache/m/p/1/.codex-plugin/plugin.json", "{}");
  assert.equal((await discoverCapabilities(env)).warnings.length, 3);
});
