import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { Ajv2020 } from "ajv/dist/2020.js";
import { parse } from "yaml";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import { PROCWIRE, ServeChild, scratchDirectory } from "../support/servers/serve.ts";
import { POD_SCHEMA } from "../support/system/pod-schema.ts";

const TIMEOUT = { timeout: 600_000 };
const YAML = readFileSync(new URL("../../examples/kubernetes/sidecar.yaml", import.meta.url), "utf8");

interface Container {
  name: string;
  args?: string[];
  env?: { name: string; value?: string; valueFrom?: { secretKeyRef: { name: string; key: string } } }[];
  ports?: { containerPort: number }[];
  readinessProbe?: { httpGet: { path: string; port: number } };
  livenessProbe?: { httpGet: { path: string; port: number } };
  volumeMounts?: { name: string; mountPath: string }[];
}
interface Pod {
  spec: {
    securityContext: { fsGroup: number };
    initContainers: Container[];
    containers: Container[];
    volumes: { name: string; secret?: { secretName: string; defaultMode: number } }[];
  };
}

/** Parses like Kubernetes: YAML 1.1, with octal numbers after a leading zero and without duplicate members. */
const POD: Pod = parse(YAML, { version: "1.1", uniqueKeys: true, strict: true });
const { initContainers, containers, volumes, securityContext } = POD.spec;

describe("the example of a sidecar", TIMEOUT, () => {
  const [sidecar, ...otherSidecars] = initContainers;
  const [app, ...otherApps] = containers;
  assert.ok(sidecar?.args && app?.env && otherSidecars.length + otherApps.length === 0);
  const { args } = sidecar;
  const given = (flag: string) => args[args.indexOf(flag) + 1] ?? "";
  const probes = [sidecar.readinessProbe, sidecar.livenessProbe];

  test("is a valid pod: the schema of the Kubernetes API accepts every member", () => {
    const validate = new Ajv2020({ allErrors: true, allowUnionTypes: true, strictTypes: false }).compile(POD_SCHEMA);
    validate(POD);
    assert.deepEqual(validate.errors ?? [], []);
    // The schema rejects invalid pods.
    for (const broken of [
      YAML.replace("readinessProbe:", "readynessProbe:"),
      YAML.replace("containerPort: 7070", 'containerPort: "7070"'),
      YAML.replace("      restartPolicy: Always\n", "      restartPolicy: Never\n"),
      YAML.replace("memory: 2Gi", "memory: 2 GB"),
      YAML.replace("          mountPath: /work\n", ""),
    ]) {
      assert.notEqual(broken, YAML);
      assert.equal(validate(parse(broken, { version: "1.1" })), false);
    }
  });

  test("mounts every declared volume, and no other", () => {
    const mounted = [sidecar, app].flatMap(({ volumeMounts = [] }) => volumeMounts.map(({ name }) => name));
    assert.deepEqual([...new Set(mounted)].sort(), volumes.map(({ name }) => name).sort());
  });

  test("uses the same port everywhere", () => {
    const listens = Number(new URL(given("--listen")).port);
    const ports = [
      ...(sidecar.ports ?? []).map(({ containerPort }) => containerPort),
      ...probes.map((probe) => probe?.httpGet.port),
    ];
    assert.deepEqual(ports, [listens, listens, listens]);
    const connects = app.env?.find(({ name }) => name === "PROCWIRE_CONNECT")?.value ?? "";
    assert.equal(Number(new URL(connects).port), listens);
  });

  test("mounts the token at the path of --ws-token-file, readable by its group, and passes it to the application", () => {
    const [directory, file] = /^(.*)\/([^/]*)$/.exec(given("--ws-token-file"))?.slice(1) ?? [];
    const mount = sidecar.volumeMounts?.find(({ mountPath }) => mountPath === directory);
    const { secret } = volumes.find(({ name }) => name === mount?.name) ?? {};
    assert.equal(secret?.defaultMode, 0o440);
    assert.equal(securityContext.fsGroup, 1000);
    const ref = app.env?.find(({ name }) => name === "PROCWIRE_TOKEN")?.valueFrom?.secretKeyRef;
    assert.deepEqual(ref, { name: secret.secretName, key: file });
    assert.match(YAML, new RegExp(`create secret generic ${secret.secretName} --from-literal=${file}=`));
  });

  test("starts a server with its flags, which responds to probes without the token and to clients with the token", async () => {
    using scratch = scratchDirectory();
    const token = "0123456789abcdef0123456789abcdef0123";
    const tokenFile = join(scratch.path, "token");
    writeFileSync(tokenFile, `${token}\n`, { mode: 0o440 });
    // The documented command with a free loopback port and a local file.
    const here: Record<string, string> = {
      [given("--listen")]: "ws://127.0.0.1:0",
      [given("--ws-token-file")]: tokenFile,
    };
    const [program, ...words] = [PROCWIRE, ...args.map((word) => here[word] ?? word)];
    await using server = await new ServeChild(words, { command: [program] }).listening();
    for (const probe of probes) {
      const path = probe?.httpGet.path ?? "";
      const { status } = await fetch(server.url.replace("ws:", "http:").replace(/\/?$/, path));
      assert.equal(status, 200, path);
    }
    await assert.rejects(NodeExecServerClient.connectWebSocket({ url: server.url }), { code: "REFUSED" });
    await using client = await NodeExecServerClient.connectWebSocket({ url: server.url, authToken: token });
    assert.ok((await client.info()).shell.path);
  });
});
