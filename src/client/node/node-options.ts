/** Schemas of the options that require Node. */

import { isObject } from "../../base/type-guards.ts";
import {
  anyObject,
  callback,
  duration,
  either,
  flag,
  kind,
  listOf,
  type OptionFields,
  type OptionKind,
  optionsOf,
  required,
  secretSource,
  secretText,
  text,
} from "../../exec/options/option-schema.ts";
import { argument, lifetimeKind, runFields, streamFields, variables } from "../../exec/options/process-options.ts";
import { clientFields, portKind } from "../client-options.ts";
import type { ExecServerClientOptions } from "../exec-server-client.ts";
import type { EnvironmentOptions } from "./environment.ts";
import type { EnvironmentRunOptions, SpawnOptions } from "./environment-commands.ts";
import type { SocketClientOptions, UnixClientOptions, WebSocketClientOptions } from "./node-client.ts";
import type { PipeOutputOptions } from "./pipe-output.ts";
import type { ForwardPortOptions, ForwardSocksOptions } from "./port-forward.ts";
import type { ExecServerLaunchCommand } from "./spawn-exec-server.ts";

const codec = anyObject;

const socketFields: OptionFields<SocketClientOptions> = {
  ...clientFields,
  connectTimeoutMs: duration,
  authToken: secretSource,
  codec,
  tlsCa: secretText,
  tlsCert: secretSource,
  tlsKey: secretSource,
  insecurePlainToken: flag,
};
export const webSocketOptions = optionsOf<WebSocketClientOptions>({ ...socketFields, url: required(text) });
export const unixOptions = optionsOf<UnixClientOptions>({ ...socketFields, path: required(text) });
export const stdioOptions = optionsOf<ExecServerClientOptions & { codec?: SocketClientOptions["codec"] }>({
  ...clientFields,
  codec,
});
export const environmentOptions = optionsOf<EnvironmentOptions>({ ...socketFields, local: callback });

export const launchCommand = optionsOf<ExecServerLaunchCommand>({
  program: required(text),
  args: listOf(text, "an array of strings"),
  cwd: text,
  env: variables,
});

const anyTarget = kind(
  "null, a URL, { url } or { program, args }",
  (value) =>
    value === null ||
    typeof value === "string" ||
    (typeof value === "object" && ("url" in value ? typeof value.url === "string" : "program" in value)),
);
const urlTarget = optionsOf<{ url: string }>({ url: required(text) });
export const environmentTarget: OptionKind = {
  form: anyTarget.form,
  findProblem: (value) =>
    anyTarget.findProblem(value) ??
    (isObject(value) ? ("url" in value ? urlTarget : launchCommand).findProblem(value) : null),
};

/** A program, or a program with arguments. */
export const commandKind = either(
  "a program or an array of program and arguments",
  argument,
  listOf(argument, "an array of strings"),
);
export const environmentRunOptions = optionsOf<EnvironmentRunOptions>({ ...runFields, reject: flag });

const { cwd, env, envPolicy, tty, size, timeoutMs, signal, processId, name, labels } = runFields;
export const spawnOptions = optionsOf<SpawnOptions>({
  ...{ cwd, env, envPolicy, tty, size, timeoutMs, signal, processId, name, labels },
  stdin: flag,
  lifetime: lifetimeKind,
});

export const pipeOptions = optionsOf<PipeOutputOptions>({ ...streamFields, end: flag });
export const pipeTarget = kind(
  "a Node stream, a web stream or a process",
  (value) =>
    typeof value === "object" && value !== null && ("closeStdin" in value || "getWriter" in value || "write" in value),
);

const listenFields: OptionFields<ForwardSocksOptions> = { port: portKind, host: text, path: text, onRefused: callback };
const tcpTarget = optionsOf<{ host: string; port: number }>({ host: required(text), port: required(portKind) });
const pathTarget = optionsOf<{ path: string }>({ path: required(text) });
const forwardTarget: OptionKind = {
  form: "{ host, port } or { path }",
  findProblem: (value) => (isObject(value) && "path" in value ? pathTarget : tcpTarget).findProblem(value),
};

export const forwardOptions = optionsOf<ForwardPortOptions>({ ...listenFields, target: required(forwardTarget) });
export const forwardSocksOptions = optionsOf<ForwardSocksOptions>(listenFields);
