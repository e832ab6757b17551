/** Schemas of the options of a server. */

import { REQUIRED_SANDBOXES } from "../exec/backend/sandbox-requirement.ts";
import {
  amount,
  anyObject,
  callback,
  count,
  duration,
  flag,
  listOf,
  nullOr,
  oneOf,
  optionsOf,
  text,
} from "../exec/options/option-schema.ts";
import { limitsKind } from "../exec/options/process-options.ts";
import type { ListenOptions } from "./listen/listen.ts";
import type { ServerConfig } from "./server-config.ts";

const strings = listOf(text, "an array of strings");

export const serverConfig = optionsOf<Partial<ServerConfig>>({
  maxProcesses: amount,
  maxServerProcesses: amount,
  maxConnections: amount,
  caps: anyObject,
  hasSeveralPrincipals: flag,
  quotas: anyObject,
  memoryBudgetBytes: amount,
  maxMessageBytes: amount,
  retainedOutputBytes: amount,
  detachedSessionTtlMs: duration,
  shutdownGraceMs: duration,
  allowDirectExec: flag,
  allowPreparedExec: flag,
  requireSandbox: nullOr(oneOf(...REQUIRED_SANDBOXES)),
  onDetach: oneOf("pause", "evict"),
  allowForward: nullOr(strings),
  proxyPrivateIpsViaUpstream: flag,
  credentials: strings,
  limits: limitsKind,
});

export const listenOptions = optionsOf<ListenOptions>({
  auth: anyObject,
  authFiles: anyObject,
  revokedTokensFile: text,
  operatorUids: listOf(count, "an array of user ids"),
  allowHosts: strings,
  web: anyObject,
  inherited: count,
  tls: callback,
  clientCertificates: anyObject,
});
