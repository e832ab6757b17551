/** Schemas of the options of a server. */

import { REQUIRED_SANDBOXES } from "../exec/backend/sandbox-requirement.ts";
import * as option from "../exec/options/option-schema.ts";
import { limitsKind } from "../exec/options/process-options.ts";
import type { AuthFiles } from "./auth/auth-config.ts";
import type { ClientCertificates } from "./auth/certificate-auth.ts";
import type { ConsoleOptions } from "./console/console-gateway.ts";
import type { ListenOptions } from "./listen/listen.ts";
import type { Cap, ServerCaps, ServerConfig } from "./server-config.ts";

const { optionsOf, required } = option;
const bytes = option.kind("bytes", ArrayBuffer.isView);

const cap = optionsOf<Cap>(() => option.each(required(option.amount), "perOwner", "total"));
const quotas = optionsOf<ServerConfig["quotas"]>(() => ({
  ...option.each(option.amount, "connections", "sessions", "processes", "waits", "httpRequests", "memoryBytes"),
  ...option.each(option.amount, "forwardListeners", "forwardStreams", "fileHandles", "watchedPaths"),
}));

export const serverConfig = optionsOf<Partial<ServerConfig>>(() => ({
  caps: optionsOf<ServerCaps>(() => ({
    ...option.each(required(cap), "waits", "httpRequests", "forwardStreams", "sandboxedFileServers"),
    ...option.each(required(option.amount), "watchedPaths", "fileHandles", "forwardListeners"),
  })),
  quotas,
  requireSandbox: option.nullOr(option.oneOf(...REQUIRED_SANDBOXES)),
  onDetach: option.oneOf("pause", "evict"),
  allowForward: option.nullOr(option.texts),
  credentials: option.texts,
  limits: limitsKind,
  ...option.each(option.amount, "maxProcesses", "maxServerProcesses", "maxConnections"),
  ...option.each(option.amount, "memoryBudgetBytes", "maxMessageBytes", "retainedOutputBytes"),
  ...option.each(option.duration, "detachedSessionTtlMs", "shutdownGraceMs"),
  ...option.each(
    option.flag,
    "hasSeveralPrincipals",
    "allowDirectExec",
    "allowPreparedExec",
    "proxyPrivateIpsViaUpstream",
  ),
}));

/** Options of `listen` and `runMain`. */
export const listenFields: option.OptionFields<Omit<ListenOptions, "web" | "inherited">> = {
  auth: option.variantsOf({
    none: {},
    "capability-token": {
      ...{ sha256: required(option.nullOr(bytes)), operatorSha256: bytes },
      ...{ scope: option.anyObject, expiresAtMs: option.number },
    },
    "signed-bearer-token": {
      ...{
        secret: required(option.nullOr(bytes)),
        operatorSha256: bytes,
        maxClockSkewSeconds: required(option.number),
      },
      ...{ keySet: option.nullOr(option.anyObject), operatorClaim: option.anyObject },
      ...option.each(option.text, "keySetUrl", "issuer", "audience"),
    },
  }),
  authFiles: optionsOf<AuthFiles>(() => ({ paths: required(option.texts), parse: required(option.callback) })),
  revokedTokensFile: option.text,
  operatorUids: option.listOf(option.count, "an array of user ids"),
  allowHosts: option.texts,
  tls: option.callback,
  clientCertificates: optionsOf<ClientCertificates>(() => ({
    files: required(option.texts),
    operatorSubjects: required(option.texts),
  })),
};

export const webFields: option.OptionFields<Omit<ConsoleOptions, "directory">> = {
  allowOrigins: option.texts,
  jobs: option.callback,
};
export const listenOptions = optionsOf<ListenOptions>(() => ({
  ...listenFields,
  web: optionsOf<ConsoleOptions>(() => ({ ...webFields, directory: required(option.nullOr(option.text)) })),
  inherited: option.count,
}));
export const serverKind = option.objectWith("an ExecServer", "accept", "setAuthenticator");

const socketTransports = {
  websocket: { host: required(option.text), port: required(option.smallCount) },
  unix: { path: required(option.text) },
};
/** Addresses of `listen`. */
export const socketTransportKind = option.variantsOf(socketTransports);
export const transportKind = option.variantsOf({ stdio: {}, ...socketTransports });
