/** Schemas of the options that require Node. */

import { isObject } from "../../base/type-guards.ts";
import * as option from "../../exec/options/option-schema.ts";
import { argument, lifetimeKind, runFields, streamFields } from "../../exec/options/process-options.ts";
import { clientFields, forwardAddress, portKind } from "../client-options.ts";
import type { ExecServerClientOptions } from "../exec-server-client.ts";
import type { EnvironmentOptions } from "./environment.ts";
import type { EnvironmentRunOptions, SpawnOptions } from "./environment-commands.ts";
import type { SocketClientOptions, UnixClientOptions, WebSocketClientOptions } from "./node-client.ts";
import type { PipeOutputOptions } from "./pipe-output.ts";
import type { ForwardPortOptions, ForwardSocksOptions } from "./port-forward.ts";
import type { ExecServerLaunchCommand } from "./spawn-exec-server.ts";

const { optionsOf, required } = option;

const codec = option.anyObject;

const socketFields: option.OptionFields<SocketClientOptions> = {
  ...clientFields,
  connectTimeoutMs: option.duration,
  ...option.each(option.secretSource, "authToken", "tlsCert", "tlsKey"),
  codec,
  tlsCa: option.secretText,
  insecurePlainToken: option.flag,
};
export const webSocketOptions = optionsOf<WebSocketClientOptions>(() => ({
  ...socketFields,
  url: required(option.text),
}));
export const unixOptions = optionsOf<UnixClientOptions>(() => ({ ...socketFields, path: required(option.text) }));
export const stdioOptions = optionsOf<ExecServerClientOptions & { codec?: SocketClientOptions["codec"] }>(() => ({
  ...clientFields,
  codec,
}));
export const environmentOptions = optionsOf<EnvironmentOptions>(() => ({ ...socketFields, local: option.callback }));

export const launchCommand = optionsOf<ExecServerLaunchCommand>(() => ({
  program: required(
    option.kind("a program name or path", (value) => value !== "" && argument.findProblem(value) === null),
  ),
  args: option.listOf(argument, "an array of strings"),
  cwd: argument,
  env: runFields.env,
}));

const anyTarget = option.kind(
  "null, a URL, { url } or { program, args }",
  (value) =>
    value === null ||
    typeof value === "string" ||
    (typeof value === "object" && ("url" in value ? typeof value.url === "string" : "program" in value)),
);
const urlTarget = optionsOf<{ url: string }>(() => ({ url: required(option.text) }));
export const environmentTarget: option.OptionKind = {
  form: anyTarget.form,
  findProblem: (value) =>
    anyTarget.findProblem(value) ??
    (isObject(value) ? option.optionsByMember("url", urlTarget, launchCommand).findProblem(value) : null),
};

/** A program, or a program with arguments. */
export const commandKind = option.either(
  "a program or an array of program and arguments",
  argument,
  option.listOf(argument, "an array of strings"),
);
export const environmentRunOptions = optionsOf<EnvironmentRunOptions>(() => ({ ...runFields, reject: option.flag }));

const { cwd, env, envPolicy, tty, size, timeoutMs, signal, processId, name, labels } = runFields;
export const spawnOptions = optionsOf<SpawnOptions>(() => ({
  ...{ cwd, env, envPolicy, tty, size, timeoutMs, signal, processId, name, labels },
  stdin: option.flag,
  lifetime: lifetimeKind,
}));

export const pipeOptions = optionsOf<PipeOutputOptions>(() => ({ ...streamFields, end: option.flag }));
export const pipeTarget = option.kind(
  "a Node stream, a web stream or a process",
  (value) =>
    typeof value === "object" && value !== null && ("closeStdin" in value || "getWriter" in value || "write" in value),
);

const listenFields: option.OptionFields<ForwardSocksOptions> = {
  port: portKind,
  host: option.text,
  path: option.text,
  onRefused: option.callback,
};
export const forwardOptions = optionsOf<ForwardPortOptions>(() => ({
  ...listenFields,
  target: required(forwardAddress),
}));
export const forwardSocksOptions = optionsOf<ForwardSocksOptions>(() => listenFields);
