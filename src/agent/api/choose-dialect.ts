import { anthropicDialect } from "./anthropic-dialect.ts";
import { chatCompletionsDialect } from "./chat-completions-dialect.ts";
import type { ModelDialect } from "./model-api.ts";
import { responsesDialect } from "./responses-dialect.ts";

/** The supported API dialects, by their `--api` name. */
export const API_KINDS = ["responses", "chat", "anthropic"] as const;
export type ApiKind = (typeof API_KINDS)[number];

export const DIALECTS: Readonly<Record<ApiKind, ModelDialect>> = {
  responses: responsesDialect,
  chat: chatCompletionsDialect,
  anthropic: anthropicDialect,
};

/** Hosts that support Chat Completions, but not the whole Responses API. */
const CHAT_HOSTS =
  /(^|\.)(openrouter\.ai|api\.deepseek\.com|api\.mistral\.ai|api\.together\.(xyz|ai)|api\.fireworks\.ai|generativelanguage\.googleapis\.com|api\.cerebras\.ai|api\.perplexity\.ai|dashscope(-intl)?\.aliyuncs\.com|api\.moonshot\.(ai|cn))$/;
/** Default port of Ollama. */
const OLLAMA_PORT = "11434";

/**
 * Returns the base URL and the dialect. The dialect follows from the end of a complete endpoint URL, otherwise from the
 * host.
 */
export function readBaseUrl(baseUrl: string, requestedKind?: ApiKind): { baseUrl: string; kind: ApiKind } {
  const url = new URL(baseUrl);
  const path = url.pathname.replace(/\/+$/, "");
  const endpointKind = API_KINDS.find((kind) => path.endsWith(DIALECTS[kind].path));
  const kind = requestedKind ?? endpointKind ?? kindOfHost(url);
  // If `requestedKind` names another dialect than the endpoint URL, only the base of that URL is used.
  url.pathname = endpointKind ? path.slice(0, -DIALECTS[endpointKind].path.length) : path;
  // Base URLs for Anthropic's own clients consist of the host only.
  if (kind === "anthropic" && !endpointKind && path === "") url.pathname = "/v1";
  return { baseUrl: url.href, kind };
}

function kindOfHost({ hostname, port }: URL): ApiKind {
  if (/(^|\.)anthropic\.com$/.test(hostname)) return "anthropic";
  return port === OLLAMA_PORT || CHAT_HOSTS.test(hostname) ? "chat" : "responses";
}
