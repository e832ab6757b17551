import { isObject, type JsonObject } from "../../agent/api/response-events.ts";
import type { BatchedTokens, TokenUsage } from "../../agent/token-usage.ts";
import { messageOf } from "../../base/error-message.ts";
import { InputError } from "../job.ts";
import packaged from "./prices.json" with { type: "json" };

/** US dollars for a million tokens. */
export interface Price {
  input: number;
  cachedInput: number;
  output: number;
}

/** The known prices of models. */
export class PriceTable {
  #prices: ReadonlyMap<string, Price>;

  constructor(prices: ReadonlyMap<string, Price>) {
    this.#prices = prices;
  }

  /** Null: the price of this model is not known. */
  priceOf(model: string): Price | null {
    for (const name of namesOf(model)) {
      const price = this.#prices.get(name);
      if (price) return price;
    }
    return null;
  }

  /** This table extended by the prices in a file's text, which override existing ones. */
  with(text: string, name: string): PriceTable {
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch (error) {
      throw new InputError(`the prices ${name} are not JSON: ${messageOf(error)}`, { cause: error });
    }
    const models = isObject(value) && isObject(value.models) ? value.models : value;
    if (!isObject(models)) throw badPrices(name, "they are not a JSON object");
    return new PriceTable(new Map([...this.#prices, ...decodePrices(models, name)]));
  }
}

/** Date of the prices in the package. */
export const PRICES_AS_OF: string = packaged.asOf;

export const PACKAGE_PRICES = new PriceTable(decodePrices(packaged.models, "of the package"));

/** The cost of a usage, in dollars. */
export function costOf(price: Price, usage: TokenUsage): number {
  const saved = usage.batched ? microsOf(price, usage.batched) * (1 - BATCH_SHARE) : 0;
  return (microsOf(price, usage) - saved) / 1_000_000;
}

/** The price of a token in a batch, as a share of its normal price. */
const BATCH_SHARE = 0.5;

function microsOf(price: Price, usage: BatchedTokens): number {
  const fresh = usage.inputTokens - usage.cachedInputTokens;
  return (
    fresh * price.input + usage.cachedInputTokens * price.cachedInput + usage.outputTokens * price.output
  );
}

/** `$1.23`; small sums get enough digits to differ from zero. */
export function moneyText(usd: number): string {
  if (usd === 0 || usd >= 0.1) return `$${usd.toFixed(2)}`;
  return `$${usd.toFixed(Math.min(8, 1 - Math.floor(Math.log10(usd))))}`;
}

/** The name itself, without a provider prefix, and without a release date suffix. */
function namesOf(model: string): string[] {
  const bare = model.slice(model.lastIndexOf("/") + 1);
  return [model, bare, bare.replace(/-(\d{4}-?\d{2}-?\d{2}|latest)$/, "")];
}

function decodePrices(models: JsonObject, name: string): Map<string, Price> {
  const prices = new Map<string, Price>();
  for (const [model, entry] of Object.entries(models)) {
    if (!isObject(entry)) throw badPrices(name, `${model} has no prices`);
    const { input, output, cachedInput = input } = entry;
    if (!isPrice(input) || !isPrice(output) || !isPrice(cachedInput)) {
      throw badPrices(name, `those of ${model} are not numbers of at least 0`);
    }
    prices.set(model, { input, output, cachedInput });
  }
  return prices;
}

function isPrice(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value) && value >= 0;
}

function badPrices(name: string, why: string): InputError {
  const right =
    '{"MODEL": {"input": 1.25, "cachedInput": 0.125, "output": 10}}, in dollars for a million tokens';
  return new InputError(`the prices ${name} cannot be used: ${why}; expected ${right}`);
}
