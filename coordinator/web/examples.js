// Questions for a first visit. The first row that fits the model is used.

const SQL = (columns, question) => `columns: ${columns}\nquestion: ${question}\nsql:`;

const TABLE = [
  {
    fits: (model, chat) => !chat && /sql/i.test(model),
    about: "This model turns a question about a table into SQL. It knows only this form of text.",
    questions: [
      ["A city", SQL("airport, city, country, iata, icao", "Which city has the IATA code SSG?")],
      ["Two conditions", SQL("height, player, position, school, years", "Which school has a position of forward and a player of Grant Hill?")],
      ["Counting", SQL("date, game, opponent, points, score", "How many games had more than 20 points against Chicago?")],
      ["A largest value", SQL("bronze, gold, nation, rank, silver, total", "What is the highest total of the nation with more than 2 gold medals and less than 5 bronze medals?")],
    ],
  },
  {
    fits: (model, chat) => !chat && /stor(y|ies)/i.test(model),
    about: "This model tells stories for children. Give it a beginning.",
    questions: [
      ["Once upon a time", "Once upon a time, there was a little"],
      ["A dog", "The dog was sad because"],
      ["In the park", "One day, Lily and Tom went to the park. They saw"],
    ],
  },
  {
    fits: (model, chat) => chat,
    about: "Ask a question, or try one of these.",
    questions: [
      ["A capital", "What is the capital of France?"],
      ["Three animals", "Name three animals that live in the sea."],
      ["The moon", "Write one sentence about the moon."],
      ["A reason", "Why is the sky blue?"],
    ],
  },
  {
    fits: () => true,
    about: "Give the model a beginning, or try one of these.",
    questions: [
      ["Colours", "The three primary colours are"],
      ["A capital", "The capital of France is"],
      ["A list", "Things to take on a walk in the mountains:\n1."],
    ],
  },
];

export function examplesFor(model, chat) {
  return TABLE.find((row) => row.fits(model, chat));
}
