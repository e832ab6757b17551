// prose-ok-file: answer -- users answer network questions
import {
  array,
  boolean,
  checkedString,
  DecodeError,
  enumOf,
  extended,
  type Infer,
  id,
  map,
  nullish,
  object,
  optional,
  string,
  taggedUnion,
  u16,
  u64,
  unknown,
} from "../schema.ts";

/** Schemas of the managed network: `networkProxy` of `process/start`, and the messages `network/*`. */

/** Protocol of a request that a process sends to its network proxy. */
const networkProtocol = enumOf("http", "https_connect", "socks5_tcp", "socks5_udp");

export const networkPolicy = object("RemoteNetworkProxyConfig", () => ({
  /** Must be true. */
  enabled: boolean,
  /** False: `ALL_PROXY` and `FTP_PROXY` name the HTTP listener. */
  enableSocks5: boolean,
  /** The proxy rejects UDP in both cases. */
  enableSocks5Udp: boolean,
  /** The HTTP listener connects through the proxy that the environment of the server names. */
  allowUpstreamProxy: boolean,
  /** Has no effect on Linux. */
  dangerouslyAllowAllUnixSockets: boolean,
  /** `limited`: GET, HEAD and OPTIONS over plain HTTP only. */
  mode: enumOf("limited", "full"),
  /** Permission by pattern: `example.com`, `*.example.com`, `**.example.com` (with the apex), `*`, or an IP address. */
  domains: nullish(map(enumOf("none", "allow", "deny"))),
  /** Patterns that the server asks about although `domains` allows them. */
  reviewDomains: nullish(array(string)),
  /** Has no effect on Linux. */
  unixSockets: nullish(unknown),
  /** True: the allow patterns alone decide about loopback and private addresses. */
  allowLocalBinding: boolean,
  /** The server rejects true. */
  credentialMasking: nullish(boolean),
  credentialProviders: nullish(unknown),
  /** Destination ports that the process may use. Absent: all. An addition of procwire. */
  ports: nullish(array(u16)),
  /** Methods of plain HTTP requests; the proxy then denies tunnels. Absent: all. An addition of procwire. */
  methods: nullish(array(string)),
}));
/** Network policy of one process. */
export interface NetworkPolicy extends Infer<typeof networkPolicy> {}

export const networkProxy = object("RemoteNetworkProxyLaunchConfig", () => ({
  proxy: networkPolicy,
  /** For logs only. */
  auditMetadata: nullish(unknown),
  /** For logs only. */
  environmentId: nullish(string),
  /** For logs only. */
  executionId: nullish(string),
  /** Present: the server asks the client about hosts that the policy does not allow. Not zero. */
  policyDecisionTimeoutMs: nullish(u64),
}));
export interface NetworkProxyConfig extends Infer<typeof networkProxy> {}

export const managedNetwork = object("ManagedNetwork", () => ({
  loopbackPorts: nullish(array(u16)),
  allowLocalBinding: nullish(boolean),
}));

const networkRequest = object("NetworkPolicyRequest", () => ({
  protocol: networkProtocol,
  host: string,
  port: u16,
  /** HTTP method; absent for SOCKS5. */
  method: extended(string),
  /** Address of the process's side of the connection. */
  client: extended(string),
}));
/** A request that the policy does not decide. */
export interface NetworkRequest extends Infer<typeof networkRequest> {}

export const policyRequestParams = object("NetworkPolicyRequestParams", () => ({
  processId: id,
  request: networkRequest,
}));

/** Longest reason, in bytes. */
export const MAX_REASON_BYTES = 1024;

const reason = checkedString("string", (text) => {
  if (new TextEncoder().encode(text).length > MAX_REASON_BYTES)
    throw new DecodeError(`reason exceeds ${MAX_REASON_BYTES} bytes`);
  if (/[\u0000-\u001f\u007f-\u009f]/.test(text)) throw new DecodeError("reason contains a control character");
});

const networkAnswer = taggedUnion("NetworkPolicyAnswer", { allow: {}, deny: { reason }, ask: { reason } });
/** Response of a client to a network request. `ask` denies too, and differs only in the reported decision. */
export type NetworkAnswer = Infer<typeof networkAnswer>;

export const policyRequestResult = object("NetworkPolicyRequestResult", () => ({ decision: networkAnswer }));

/**
 * Answer of a user to a network question. `once`: the waiting requests. `process`, `session`: the host and port until the
 * process or the client's tools end. `always`: the host, stored in the rules file of the client that asks.
 */
const userAnswer = enumOf("once", "process", "session", "always", "deny");
export type UserAnswer = Infer<typeof userAnswer>;

const question = {
  /** Host and port of a `network/policyRequest` that waits for its response. */
  host: string,
  port: u16,
  protocol: networkProtocol,
  /** Why the client asks. */
  reason,
  /** Whether the answer `always` is possible. */
  canRemember: boolean,
};
export const askNetworkParams = object("AskNetworkParams", () => ({ processId: id, ...question }));
export interface AskNetworkParams extends Infer<typeof askNetworkParams> {}

/** `answer` is absent if the question ended without an answer of a console. */
export const askNetworkResult = object("AskNetworkResult", () => ({ answer: optional(userAnswer) }));

/**
 * Lets users of the server's web console answer a network request. Resolves to null if they cannot, or if the question ends
 * without an answer of a console.
 */
export type AskConsole = (
  question: { reason: string; canRemember: boolean },
  signal: AbortSignal,
) => Promise<UserAnswer | null>;

const networkQuestion = object("NetworkQuestion", () => ({
  questionId: id,
  handle: id,
  /** Owner of the process. */
  principal: string,
  argv: array(string),
  ...question,
  askedAtMs: u64,
}));
/** A network question that waits for a user. */
export interface NetworkQuestion extends Infer<typeof networkQuestion> {}

export const networkQuestionsResult = object("NetworkQuestionsResult", () => ({ questions: array(networkQuestion) }));

export const answerNetworkParams = object("AnswerNetworkParams", () => ({ questionId: id, answer: userAnswer }));
/** `accepted` is false if the question is unknown, or was answered before. */
export const answerNetworkResult = object("AnswerNetworkResult", () => ({
  accepted: boolean,
  host: optional(string),
  port: optional(u16),
}));

const networkDecision = {
  /** ISO 8601 in UTC. */
  timestamp: string,
  /** `domain`: decided by the host. `non_domain`: by mode or method. */
  scope: enumOf("domain", "non_domain"),
  decision: enumOf("allow", "deny", "ask"),
  source: enumOf("baseline_policy", "decider", "mode_guard", "proxy_state"),
  reason: string,
  protocol: networkProtocol,
  host: string,
  port: u16,
  /** HTTP method; absent for SOCKS5. */
  method: optional(string),
  /** Address of the process's side of the connection. */
  client: string,
  /** The client allowed what the policy does not allow. */
  policyOverride: boolean,
};
export const policyDecisionParams = object("NetworkPolicyDecision", () => ({ processId: id, ...networkDecision }));
/** A decision of the network proxy about one request. */
export interface NetworkDecision extends Omit<Infer<typeof policyDecisionParams>, "processId"> {}

export const connectionsParams = object("ConnectionsParams", () => ({ handle: id }));

const networkConnection = object("NetworkConnection", () => ({
  decision: networkDecision.decision,
  reason: string,
  protocol: networkProtocol,
  host: string,
  port: u16,
  /** Number of requests with this decision. */
  count: u64,
  /** Time of the last request. */
  lastAtMs: u64,
}));
/** A network target of a process, with the decision of its proxy. */
export interface NetworkConnection extends Infer<typeof networkConnection> {}

export const connectionsResult = object("ConnectionsResult", () => ({
  /** In the order of their first request. Empty without a managed network. */
  connections: array(networkConnection),
  /** Number of requests to further targets that are not listed. */
  omitted: u64,
}));
