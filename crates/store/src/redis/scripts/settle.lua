-- Returns whether a decision was committed: 'made', 'not made' or 'unknown', and the moment. A decision that was not made is marked,
-- so that it never will be: the server may still read it from a broken connection.
--
-- ARGV: 2 the moment and 3 the number of the decision.
if moment - tonumber(ARGV[2]) > 60000000 then
    return { 'unknown', moment }
elseif redis.call('ZSCORE', KEYS[7], ARGV[3]) then
    return { 'made', moment }
end
redis.call('ZADD', KEYS[7], text(number), 'x' .. ARGV[3])
return { 'not made', moment }
