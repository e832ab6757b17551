import { anthropicMessagesWire } from "./anthropic-dialect.ts";
import { chatCompletionsWire } from "./chat-completions-dialect.ts";
import type { Wire } from "./model-api.ts";
import { responsesWire } from "./responses-dialect.ts";

/** The kinds of API that are spoken, as `--api` names them. */
export const API_KINDS = ["responses", "chat", "anthropic"] as const;
export type ApiKind = (typeof API_KINDS)[number];

const WIRES: Readonly<Record<ApiKind, Wire>> = {
  responses: responsesWire,
  chat: chatCompletionsWire,
  anthropic: anthropicMessagesWire,
};

export function wireOf(kind: ApiKind): Wire {
  return WIRES[kind];
}

/** Hosts that speak Chat Completions and no Responses API, or only a part of it. */
const CHAT_HOSTS =
  /(^|\.)(openrouter\.ai|api\.deepseek\.com|api\.mistral\.ai|api\.together\.(xyz|ai)|api\.fireworks\.ai|generativelanguage\.googleapis\.com|api\.cerebras\.ai|api\.perplexity\.ai|dashscope(-intl)?\.aliyuncs\.com|api\.moonshot\.(ai|cn))$/;
/** Where Ollama listens unless it is told otherwise. */
const OLLAMA_PORT = "11434";

/** A base URL and the kind of API behind it: by its last words when it is a whole address, else by its host. */
export function readBaseUrl(baseUrl: string, given?: ApiKind): { baseUrl: string; kind: ApiKind } {
  const url = new URL(baseUrl);
  const path = url.pathname.replace(/\/+$/, "");
  const named = API_KINDS.find((kind) => path.endsWith(WIRES[kind].path));
  const kind = given ?? named ?? kindOfHost(url);
  // A whole address that another API was asked for on is taken for the base it begins with.
  url.pathname = named ? path.slice(0, -WIRES[named].path.length) : path;
  // Anthropic's own clients are told the host alone.
  if (kind === "anthropic" && !named && path === "") url.pathname = "/v1";
  return { baseUrl: url.href, kind };
}

function kindOfHost({ hostname, port }: URL): ApiKind {
  if (/(^|\.)anthropic\.com$/.test(hostname)) return "anthropic";
  return port === OLLAMA_PORT || CHAT_HOSTS.test(hostname) ? "chat" : "responses";
}
